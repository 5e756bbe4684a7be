"""init-producer-id: an id for an idempotent producer.

init-producer-id (key 22): versions 0 to 1, native 0 to 1 (KIP-98)
     1  the response comes before the client is throttled (KIP-219)

Left out: transactional ids, which are refused by name, and the epochs of KIP-360.
"""

from ...protocol.api.log.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ...protocol.errors import UnsupportedVersion
from ..requests import Call, PendingAnswer
from .base import Services
from .registration import handles


@handles(INIT_PRODUCER_ID)
def handle(services: Services, request: InitProducerIdRequest, call: Call) -> PendingAnswer:
    if request.transactional_id is not None:
        raise UnsupportedVersion(
            f"transactional.id is {request.transactional_id[:100]!r}; there are no transactions in "
            "Horolog: leave it out (enable.idempotence alone is served)"
        )
    # Now and then an id takes a write to the disk. Always the same thread: ids are given in turn.
    ready = services.work.in_producer_ids_thread(services.directory.producer_ids.next)

    def answer() -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=ready.result(), producer_epoch=0)

    return PendingAnswer(ready, answer)
