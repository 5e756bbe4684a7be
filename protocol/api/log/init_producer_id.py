"""init-producer-id: get a producer id, which lets the broker recognise repeated batches."""

from typing import Final

from ..rights import How, Need, Right
from ..schema import Api, ServedBy, error_text, int16, int32, int64, message, nullable_string
from ..security.acl_terms import Operation, ResourceType

NO_PRODUCER_ID: Final = -1


@message
class InitProducerIdRequest:
    transactional_id: str | None = nullable_string(
        default=None, doc="Has to be null: there are no transactions, so a name is refused."
    )
    transaction_timeout_ms: int = int32(default=60_000, doc="Ignored.")


@message
class InitProducerIdResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    error_code: int = int16(default=0, doc="0 if an id was assigned.")
    producer_id: int = int64(default=NO_PRODUCER_ID, doc="An id that no other producer gets.")
    producer_epoch: int = int16(default=-1, doc="0 with a new id.")
    error_message: str | None = error_text(native=True, default=None)


INIT_PRODUCER_ID: Final = Api(
    key=22,
    name="init-producer-id",
    min_version=0,
    max_version=1,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
    doc="Assign a producer id.",
    rights=(
        Need(
            (
                Right(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),
                Right(Operation.WRITE, ResourceType.TOPIC, some=True),
            ),
            How.WHOLE,
        ),
    ),
    served_by=ServedBy.ANY_BROKER,  # As librdkafka expects. No two brokers assign the same id.
)
