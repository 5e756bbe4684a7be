"""describe-client-quotas and alter-client-quotas: list and change quotas."""

from typing import Final

from ...limits import MAX_QUOTA_ENTITIES, MAX_QUOTA_PARTS
from ..rights import whole
from ..schema import (
    Api,
    ServedBy,
    array,
    boolean,
    error_text,
    flexible_since,
    float64,
    int8,
    int16,
    int32,
    message,
    nullable_string,
    string,
)
from .acl_terms import Operation, ResourceType

_TYPES: Final = "`user` or `client-id`"
_KEYS: Final = (
    "producer_byte_rate, consumer_byte_rate, request_percentage or controller_mutation_rate."
)


@message
class QuotaComponent:
    entity_type: str = string(doc=f"{_TYPES}.")
    match_type: int = int8(doc="0 this name, 1 the default, 2 any name and the default.")
    match: str | None = nullable_string(doc="The name; null unless match_type is 0.")


@flexible_since(1)
@message
class DescribeClientQuotasRequest:
    components: list[QuotaComponent] = array(
        QuotaComponent, max_items=MAX_QUOTA_PARTS, doc="What entities have to have; none: all."
    )
    strict: bool = boolean(default=False, doc="Whether they may have nothing else.")


@message
class QuotaEntityPart:
    entity_type: str = string(doc=f"{_TYPES}.")
    entity_name: str | None = nullable_string(doc="Its name; null for the default.")


@message
class QuotaValue:
    key: str = string(doc=_KEYS)
    value: float = float64(doc="Bytes or partitions a second, or percent.")


@message
class QuotaEntry:
    entity: list[QuotaEntityPart] = array(
        QuotaEntityPart, max_items=MAX_QUOTA_PARTS, doc="Whose quotas."
    )
    values: list[QuotaValue] = array(QuotaValue, max_items=MAX_QUOTA_PARTS, doc="Its quotas.")


@flexible_since(1)
@message
class DescribeClientQuotasResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is not listened to.")
    error_code: int = int16(default=0, doc="0 unless the request makes no sense.")
    error_message: str | None = error_text(default=None)
    entries: list[QuotaEntry] | None = array(
        QuotaEntry, max_items=MAX_QUOTA_ENTITIES, nullable=True, default=()
    )


@message
class QuotaOp:
    key: str = string(doc=_KEYS)
    value: float = float64(doc="Above 0. Byte rates are whole.")
    remove: bool = boolean(doc="Take the quota away; the value means nothing then.")


@message
class QuotaAlteration:
    entity: list[QuotaEntityPart] = array(
        QuotaEntityPart, max_items=MAX_QUOTA_PARTS, doc="Whose quotas."
    )
    ops: list[QuotaOp] = array(QuotaOp, max_items=MAX_QUOTA_PARTS, doc="What changes.")


@flexible_since(1)
@message
class AlterClientQuotasRequest:
    entries: list[QuotaAlteration] = array(
        QuotaAlteration, max_items=MAX_QUOTA_ENTITIES, doc="Each succeeds or fails as a whole."
    )
    validate_only: bool = boolean(doc="Only say whether it could be done.")


@message
class QuotaAlterationResult:
    error_code: int = int16(default=0, doc="0 when all that was asked for it is done.")
    error_message: str | None = error_text(default=None)
    entity: list[QuotaEntityPart] = array(
        QuotaEntityPart, max_items=MAX_QUOTA_PARTS, doc="As in the request."
    )


@flexible_since(1)
@message
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is not listened to.")
    entries: list[QuotaAlterationResult] = array(
        QuotaAlterationResult, max_items=MAX_QUOTA_ENTITIES, doc="One for each, in their order."
    )


DESCRIBE_CLIENT_QUOTAS: Final = Api(
    key=48,
    name="describe-client-quotas",
    min_version=0,
    max_version=1,
    request=DescribeClientQuotasRequest,
    response=DescribeClientQuotasResponse,
    doc="The quotas that a filter means. Version 1 is Kafka's compact encoding of the same.",
    rights=(whole(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),),
    served_by=ServedBy.ANY_BROKER,
)

ALTER_CLIENT_QUOTAS: Final = Api(
    key=49,
    name="alter-client-quotas",
    min_version=0,
    max_version=1,
    request=AlterClientQuotasRequest,
    response=AlterClientQuotasResponse,
    doc="Set quotas and take them away; they are durable, and hold from the next request on. "
    "Version 1 is Kafka's compact encoding of the same.",
    rights=(whole(Operation.ALTER_CONFIGS, ResourceType.CLUSTER),),
)
