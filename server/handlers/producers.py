"""init-producer-id and describe-producers: an id for an idempotent producer, and the idempotent
producers of partitions.

init-producer-id (key 22): versions 0 to 1, native 0 to 1 (KIP-98)
     1  the response comes before the client is throttled (KIP-219)
describe-producers (key 61): versions 0 (KIP-664)

Left out: transactional ids, which are refused by name, the epochs of KIP-360, and transactions, so
that there is no current transaction of a producer.
"""

from ...protocol.api.log.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
    ProducerState,
)
from ...protocol.api.log.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ...protocol.errors import UnsupportedVersion
from ...protocol.limits import MAX_LISTED_PRODUCERS
from ...storage.producers.producer_states import KnownProducer
from ..requests import Call, PendingAnswer
from .base import Services
from .registration import handles
from .repeats import refusing_repeats


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


@handles(DESCRIBE_PRODUCERS)
@refusing_repeats(DESCRIBE_PRODUCERS)
def describe_producers(
    services: Services, request: DescribeProducersRequest, call: Call
) -> PendingAnswer:
    task = services.work.start(_describe(services, request))
    return PendingAnswer(task, task.result)


async def _describe(
    services: Services, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    turns = services.work.turns()
    topics: list[DescribeProducersTopicResult] = []
    for topic in request.topics:
        results: list[DescribeProducersPartitionResult] = []
        topics.append(DescribeProducersTopicResult(name=topic.name, partitions=results))
        for partition in topic.partitions:
            result = DescribeProducersPartitionResult(partition=partition)
            results.append(result)
            try:
                log = services.logs.find(topic.name, partition)
                newest = log.producers.states.newest(MAX_LISTED_PRODUCERS)
                result.active_producers = [_state(*each) for each in newest]
            except Exception as error:
                outcome = services.outcomes.of(error, api="describe-producers")
                result.error_code, result.error_message = outcome
            await turns.give_way()
    return DescribeProducersResponse(topics=topics)


def _state(producer_id: int, producer: KnownProducer) -> ProducerState:
    batches = producer.batches
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=batches[-1].last_sequence if batches else -1,
        last_timestamp=producer.seen_ms,
        current_txn_start_offset=producer.open_offset,
    )
