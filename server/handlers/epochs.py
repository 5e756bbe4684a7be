"""offset-for-leader-epoch; and checks of the leader epochs that clients name.

offset-for-leader-epoch (key 23): versions 0 to 3 (KIP-101)
     1  leader_epoch in the response (KIP-279)
     2  current_leader_epoch (KIP-320), throttle_time_ms
     3  replica_id (KIP-392)
"""

from ...protocol.api.log.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    UNDEFINED,
    OffsetForLeaderEpochPartition,
    OffsetForLeaderEpochPartitionResult,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochTopicResult,
)
from ...protocol.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from ...protocol.window_topics import base_of
from ...storage.log.log import Log
from ..requests import Call, PendingAnswer
from .base import Services
from .registration import handles
from .repeats import refusing_repeats


def check_epoch(services: Services, epoch: int) -> None:
    """Raise `FencedLeaderEpoch` or `UnknownLeaderEpoch` if a client names another epoch than this
    broker's. A single broker has no epochs, and accepts any."""
    if epoch < 0 or not services.replication.replicates:
        return
    own = services.replication.epoch
    if epoch < own:
        raise FencedLeaderEpoch(
            f"epoch {epoch} is over: this broker leads in epoch {own}; ask for the metadata again"
        )
    if epoch > own:
        raise UnknownLeaderEpoch(
            f"epoch {epoch} is not known here: this broker leads in epoch {own}"
        )


def current_epoch(services: Services) -> int:
    """Return the epoch in which this broker leads; -1 for a single broker."""
    return services.replication.epoch


def epoch_of(services: Services, log: Log, offset: int) -> int:
    """Return the epoch of the message at an offset; -1 if it is not known, and for a single broker.

    Raises `StorageError` if the epochs cannot be read.
    """
    return log.epochs.history.epoch_at(offset) if services.replication.replicates else UNDEFINED


@handles(OFFSET_FOR_LEADER_EPOCH)
@refusing_repeats(OFFSET_FOR_LEADER_EPOCH)
def handle(services: Services, request: OffsetForLeaderEpochRequest, call: Call) -> PendingAnswer:
    task = services.work.start(_answer(services, request))
    return PendingAnswer(task, task.result)


async def _answer(
    services: Services, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    turns = services.work.turns()
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            result = OffsetForLeaderEpochPartitionResult(partition=wanted.partition)
            results.append(result)
            try:
                _look_up(services, topic.name, wanted, result)
            except Exception as error:
                result.error_code, _ = services.outcomes.of(error, api="offset-for-leader-epoch")
            await turns.give_way()
        response.topics.append(OffsetForLeaderEpochTopicResult(name=topic.name, partitions=results))
    return response


def _look_up(
    services: Services,
    topic: str,
    wanted: OffsetForLeaderEpochPartition,
    result: OffsetForLeaderEpochPartitionResult,
) -> None:
    check_epoch(services, wanted.current_leader_epoch)
    log = services.logs.find(base_of(services.directory.topics(), topic), wanted.partition)
    end_offset = log.log_end_offset
    history = log.epochs.history
    current = current_epoch(services)
    if current > history.last_epoch:
        history = history.assigned(current, end_offset)  # The epoch has no message yet.
    if not 0 <= wanted.leader_epoch <= history.last_epoch:
        return
    found = history.end_of(wanted.leader_epoch, log.log_start_offset, end_offset)
    # Messages before the first known epoch have unknown epochs, or none.
    result.leader_epoch = wanted.leader_epoch if found.epoch == UNDEFINED else found.epoch
    result.end_offset = found.end_offset
