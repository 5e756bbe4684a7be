"""describe-producers: the idempotent producers of partitions.

describe-producers (key 61): versions 0 (KIP-664)

Left out: transactions, so that there is no current transaction of a producer.
"""

from ...protocol.api.log.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
    ProducerState,
)
from ...protocol.limits import MAX_LISTED_PRODUCERS
from ...storage.producers.producer_states import KnownProducer
from ..requests import Call, PendingAnswer
from .base import Services
from .registration import handles
from .repeats import refusing_repeats


@handles(DESCRIBE_PRODUCERS)
@refusing_repeats(DESCRIBE_PRODUCERS)
def handle(services: Services, request: DescribeProducersRequest, call: Call) -> PendingAnswer:
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
