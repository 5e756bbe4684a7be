"""describe-acls, create-acls and delete-acls: list and change ACLs."""

from typing import Final

from ...limits import MAX_ACLS
from ..rights import ALTERS_CLUSTER, DESCRIBES_CLUSTER
from ..schema import (
    Api,
    ServedBy,
    array,
    error_text,
    int8,
    int16,
    int32,
    message,
    nullable_string,
    string,
)

_TYPES: Final = "2 topic, 3 group, 4 cluster, 7 user"
_OPERATIONS: Final = (
    "2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action, 10 "
    "describe configs, 11 alter configs, 12 idempotent write"
)
_LITERAL: Final = 3
"""`PatternType.LITERAL`, without importing it: most brokers have no ACLs."""


@message
class DescribeAclsRequest:
    resource_type: int = int8(doc=f"1 any, {_TYPES}.")
    resource_name: str | None = nullable_string(doc="Null: whatever it is.")
    pattern_type: int = int8(
        since=1,
        native_since=0,
        default=_LITERAL,
        doc="1 any, 2 every rule that is about this resource, 3 literal, 4 prefixed.",
    )
    principal: str | None = nullable_string(doc="Null: any principal.")
    host: str | None = nullable_string(doc="Null: wherever they are.")
    operation: int = int8(doc=f"1 any, {_OPERATIONS}.")
    permission_type: int = int8(doc="1 any, 2 deny, 3 allow.")


@message
class AclDescription:
    principal: str = string(doc="Who: `User:` and a name, or `User:*`.")
    host: str = string(doc="Where they are: an address, or `*`.")
    operation: int = int8(doc=f"{_OPERATIONS}.")
    permission_type: int = int8(doc="2 deny, 3 allow.")


@message
class DescribedAcls:
    resource_type: int = int8(doc=f"{_TYPES}.")
    resource_name: str = string(doc="The resource, or the start of its name; `*` for all.")
    pattern_type: int = int8(
        since=1, native_since=0, default=_LITERAL, doc="3 literal, 4 prefixed."
    )
    acls: list[AclDescription] = array(AclDescription, max_items=MAX_ACLS, doc="Its rules.")


@message
class DescribeAclsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is not listened to.")
    error_code: int = int16(default=0, doc="0 unless none can be named.")
    error_message: str | None = error_text(default=None)
    resources: list[DescribedAcls] = array(DescribedAcls, max_items=MAX_ACLS, default=())


@message
class AclCreation:
    resource_type: int = int8(doc=f"{_TYPES}.")
    resource_name: str = string(doc="The resource, or the start of its name; `*` for all.")
    pattern_type: int = int8(
        since=1, native_since=0, default=_LITERAL, doc="3 literal, 4 prefixed."
    )
    principal: str = string(doc="Who: `User:` and a name, or `User:*`.")
    host: str = string(doc="Where they are: an address, or `*`.")
    operation: int = int8(doc=f"{_OPERATIONS}.")
    permission_type: int = int8(doc="2 deny, 3 allow.")


@message
class CreateAclsRequest:
    creations: list[AclCreation] = array(AclCreation, max_items=MAX_ACLS, doc="The rules to add.")


@message
class AclCreationResult:
    error_code: int = int16(default=0, doc="0 when the rule holds now.")
    error_message: str | None = error_text(default=None)


@message
class CreateAclsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is not listened to.")
    results: list[AclCreationResult] = array(
        AclCreationResult, max_items=MAX_ACLS, doc="One for each rule, in their order."
    )


@message
class AclFilter:
    resource_type: int = int8(doc=f"1 any, {_TYPES}.")
    resource_name: str | None = nullable_string(doc="Null: whatever it is.")
    pattern_type: int = int8(
        since=1,
        native_since=0,
        default=_LITERAL,
        doc="1 any, 2 every rule that is about this resource, 3 literal, 4 prefixed.",
    )
    principal: str | None = nullable_string(doc="Null: any principal.")
    host: str | None = nullable_string(doc="Null: wherever they are.")
    operation: int = int8(doc=f"1 any, {_OPERATIONS}.")
    permission_type: int = int8(doc="1 any, 2 deny, 3 allow.")


@message
class DeleteAclsRequest:
    filters: list[AclFilter] = array(
        AclFilter, max_items=MAX_ACLS, doc="Rules that any of them means are taken away."
    )


@message
class DeletedAcl:
    error_code: int = int16(default=0, doc="0 when it is taken away.")
    error_message: str | None = error_text(default=None)
    resource_type: int = int8(doc="As it was.")
    resource_name: str = string(doc="As it was.")
    pattern_type: int = int8(since=1, native_since=0, default=_LITERAL, doc="As it was.")
    principal: str = string(doc="As it was.")
    host: str = string(doc="As it was.")
    operation: int = int8(doc="As it was.")
    permission_type: int = int8(doc="As it was.")


@message
class AclFilterResult:
    error_code: int = int16(default=0, doc="0 when the filter made sense.")
    error_message: str | None = error_text(default=None)
    matching_acls: list[DeletedAcl] = array(
        DeletedAcl,
        max_items=MAX_ACLS,
        default=(),
        doc="The rules that it meant, and no filter before it.",
    )


@message
class DeleteAclsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is not listened to.")
    filter_results: list[AclFilterResult] = array(
        AclFilterResult, max_items=MAX_ACLS, doc="One for each filter, in their order."
    )


DESCRIBE_ACLS: Final = Api(
    key=29,
    name="describe-acls",
    min_version=0,
    max_version=1,
    request=DescribeAclsRequest,
    response=DescribeAclsResponse,
    doc="The access rules that a filter means.",
    rights=DESCRIBES_CLUSTER,
    served_by=ServedBy.ANY_BROKER,
)

CREATE_ACLS: Final = Api(
    key=30,
    name="create-acls",
    min_version=0,
    max_version=1,
    request=CreateAclsRequest,
    response=CreateAclsResponse,
    doc="Add access rules; they are durable, and hold for the next request. One that there is "
    "already stays.",
    rights=ALTERS_CLUSTER,
)

DELETE_ACLS: Final = Api(
    key=31,
    name="delete-acls",
    min_version=0,
    max_version=1,
    request=DeleteAclsRequest,
    response=DeleteAclsResponse,
    doc="Take access rules away; what they allowed is refused from the next request on.",
    rights=ALTERS_CLUSTER,
)
