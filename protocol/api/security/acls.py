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
    resource_name: str | None = nullable_string(doc="Name of the resource; null for any.")
    pattern_type: int = int8(
        since=1,
        native_since=0,
        default=_LITERAL,
        doc="1 any, 2 match (every rule that applies to this resource), 3 literal, 4 prefixed.",
    )
    principal: str | None = nullable_string(doc="Principal; null for any.")
    host: str | None = nullable_string(doc="Host; null for any.")
    operation: int = int8(doc=f"1 any, {_OPERATIONS}.")
    permission_type: int = int8(doc="1 any, 2 deny, 3 allow.")


@message
class AclDescription:
    principal: str = string(doc="Principal: `User:` and a name, or `User:*` for all.")
    host: str = string(doc="Host: an address, or `*` for any.")
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
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    error_code: int = int16(default=0, doc="0, unless the rules cannot be listed.")
    error_message: str | None = error_text(default=None)
    resources: list[DescribedAcls] = array(DescribedAcls, max_items=MAX_ACLS, default=())


@message
class AclCreation:
    resource_type: int = int8(doc=f"{_TYPES}.")
    resource_name: str = string(doc="The resource, or the start of its name; `*` for all.")
    pattern_type: int = int8(
        since=1, native_since=0, default=_LITERAL, doc="3 literal, 4 prefixed."
    )
    principal: str = string(doc="Principal: `User:` and a name, or `User:*` for all.")
    host: str = string(doc="Host: an address, or `*` for any.")
    operation: int = int8(doc=f"{_OPERATIONS}.")
    permission_type: int = int8(doc="2 deny, 3 allow.")


@message
class CreateAclsRequest:
    creations: list[AclCreation] = array(AclCreation, max_items=MAX_ACLS, doc="The rules to add.")


@message
class AclCreationResult:
    error_code: int = int16(default=0, doc="0 if the rule applies now.")
    error_message: str | None = error_text(default=None)


@message
class CreateAclsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    results: list[AclCreationResult] = array(
        AclCreationResult,
        max_items=MAX_ACLS,
        doc="One result for each rule, in the order of the request.",
    )


@message
class AclFilter:
    resource_type: int = int8(doc=f"1 any, {_TYPES}.")
    resource_name: str | None = nullable_string(doc="Name of the resource; null for any.")
    pattern_type: int = int8(
        since=1,
        native_since=0,
        default=_LITERAL,
        doc="1 any, 2 match (every rule that applies to this resource), 3 literal, 4 prefixed.",
    )
    principal: str | None = nullable_string(doc="Principal; null for any.")
    host: str | None = nullable_string(doc="Host; null for any.")
    operation: int = int8(doc=f"1 any, {_OPERATIONS}.")
    permission_type: int = int8(doc="1 any, 2 deny, 3 allow.")


@message
class DeleteAclsRequest:
    filters: list[AclFilter] = array(
        AclFilter, max_items=MAX_ACLS, doc="Filters. A rule that matches one of them is removed."
    )


@message
class DeletedAcl:
    error_code: int = int16(default=0, doc="0 if the rule was removed.")
    error_message: str | None = error_text(default=None)
    resource_type: int = int8(doc="Of the removed rule.")
    resource_name: str = string(doc="Of the removed rule.")
    pattern_type: int = int8(since=1, native_since=0, default=_LITERAL, doc="Of the removed rule.")
    principal: str = string(doc="Of the removed rule.")
    host: str = string(doc="Of the removed rule.")
    operation: int = int8(doc="Of the removed rule.")
    permission_type: int = int8(doc="Of the removed rule.")


@message
class AclFilterResult:
    error_code: int = int16(default=0, doc="0 if the filter is valid.")
    error_message: str | None = error_text(default=None)
    matching_acls: list[DeletedAcl] = array(
        DeletedAcl,
        max_items=MAX_ACLS,
        default=(),
        doc="The rules that match this filter and no earlier one.",
    )


@message
class DeleteAclsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    filter_results: list[AclFilterResult] = array(
        AclFilterResult,
        max_items=MAX_ACLS,
        doc="One result for each filter, in the order of the request.",
    )


DESCRIBE_ACLS: Final = Api(
    key=29,
    name="describe-acls",
    min_version=0,
    max_version=1,
    request=DescribeAclsRequest,
    response=DescribeAclsResponse,
    doc="List the access rules that match a filter.",
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
    doc="Add access rules. They are durable, and apply from the next request on. A rule that "
    "exists already stays.",
    rights=ALTERS_CLUSTER,
)

DELETE_ACLS: Final = Api(
    key=31,
    name="delete-acls",
    min_version=0,
    max_version=1,
    request=DeleteAclsRequest,
    response=DeleteAclsResponse,
    doc="Remove access rules. Operations that only they allowed are refused from the next "
    "request on.",
    rights=ALTERS_CLUSTER,
)
