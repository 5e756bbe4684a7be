"""describe-client-quotas and alter-client-quotas: list and change quotas, by Kafka's names for
them."""

from enum import StrEnum
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


class Quota(StrEnum):
    """What a quota limits."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"


@message
class QuotaComponent:
    entity_type: str = string(doc=f"{_TYPES}.")
    match_type: int = int8(doc="0: this name. 1: the default. 2: any name, and the default.")
    match: str | None = nullable_string(doc="The name; null unless match_type is 0.")


@flexible_since(1)
@message
class DescribeClientQuotasRequest:
    components: list[QuotaComponent] = array(
        QuotaComponent,
        max_items=MAX_QUOTA_PARTS,
        doc="What an entity has to match; empty for all entities.",
    )
    strict: bool = boolean(default=False, doc="Whether an entity may have no other components.")


@message
class QuotaEntityPart:
    entity_type: str = string(doc=f"{_TYPES}.")
    entity_name: str | None = nullable_string(
        doc="Name of the user or client id; null for the default."
    )


@message
class QuotaValue:
    key: str = string(doc=_KEYS)
    value: float = float64(doc="Bytes or partitions a second, or percent.")


@message
class QuotaEntry:
    entity: list[QuotaEntityPart] = array(
        QuotaEntityPart, max_items=MAX_QUOTA_PARTS, doc="The entity that has the quotas."
    )
    values: list[QuotaValue] = array(QuotaValue, max_items=MAX_QUOTA_PARTS, doc="Its quotas.")


@flexible_since(1)
@message
class DescribeClientQuotasResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    error_code: int = int16(default=0, doc="0 if the request is valid.")
    error_message: str | None = error_text(default=None)
    entries: list[QuotaEntry] | None = array(
        QuotaEntry, max_items=MAX_QUOTA_ENTITIES, nullable=True, default=()
    )


@message
class QuotaOp:
    key: str = string(doc=_KEYS)
    value: float = float64(doc="Above 0. Byte rates are whole.")
    remove: bool = boolean(doc="Whether to remove the quota. The value is then ignored.")


@message
class QuotaAlteration:
    entity: list[QuotaEntityPart] = array(
        QuotaEntityPart, max_items=MAX_QUOTA_PARTS, doc="The entity that has the quotas."
    )
    ops: list[QuotaOp] = array(QuotaOp, max_items=MAX_QUOTA_PARTS, doc="The changes of its quotas.")


@flexible_since(1)
@message
class AlterClientQuotasRequest:
    entries: list[QuotaAlteration] = array(
        QuotaAlteration,
        max_items=MAX_QUOTA_ENTITIES,
        doc="The entities. The changes of an entity succeed or fail as a whole.",
    )
    validate_only: bool = boolean(doc="Whether to check the request without a change.")


@message
class QuotaAlterationResult:
    error_code: int = int16(default=0, doc="0 if all changes of this entity were made.")
    error_message: str | None = error_text(default=None)
    entity: list[QuotaEntityPart] = array(
        QuotaEntityPart, max_items=MAX_QUOTA_PARTS, doc="As in the request."
    )


@flexible_since(1)
@message
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    entries: list[QuotaAlterationResult] = array(
        QuotaAlterationResult,
        max_items=MAX_QUOTA_ENTITIES,
        doc="One result for each entity, in the order of the request.",
    )


DESCRIBE_CLIENT_QUOTAS: Final = Api(
    key=48,
    name="describe-client-quotas",
    min_version=0,
    max_version=1,
    request=DescribeClientQuotasRequest,
    response=DescribeClientQuotasResponse,
    doc="List the quotas that match a filter. Version 1 is the same in Kafka's compact encoding.",
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
    doc="Set and remove quotas. The changes are durable, and apply from the next request on. "
    "Version 1 is the same in Kafka's compact encoding.",
    rights=(whole(Operation.ALTER_CONFIGS, ResourceType.CLUSTER),),
)
