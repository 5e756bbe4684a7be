"""What clients wait for: that all in-sync replicas have it."""

from collections.abc import Callable

from ...protocol.cluster_errors import (
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
)
from ...protocol.errors import CodedError
from ...replication.effects import Outcome
from ...replication.partition_log import Partition


class Commit:
    """The wait for one set, or for a trim. It is the token that `replication/` knows it by."""

    __slots__ = ("_tell", "done", "error", "partition")

    def __init__(
        self, partition: Partition, tell: Callable[[CodedError | None], None] | None = None
    ) -> None:
        """`tell` is called once it is known what became of it, with the error, if there is one."""
        self.partition = partition
        self._tell = tell
        self.done = False
        self.error: CodedError | None = None
        """What the client is told, when it is not as it asked."""

    def settle(self, outcome: Outcome, told: str) -> None:
        """It is known what became of it. `told` says who leads."""
        self.done = True
        if outcome is not Outcome.DONE:
            self.error = error_of(outcome, told)
        if self._tell is not None:
            self._tell(self.error)


def error_of(outcome: Outcome, told: str) -> CodedError:
    """What a client is told that was not served."""
    if outcome is Outcome.NOT_LEADER:
        return NotLeader(told)
    if outcome is Outcome.NOT_ENOUGH_REPLICAS:
        return NotEnoughReplicas(
            "fewer brokers are in sync than min.insync.replicas; nothing was done "
            "(horolog cluster status)"
        )
    return NotEnoughReplicasAfterAppend(
        "fewer brokers are in sync than min.insync.replicas; the messages are in the log, "
        "and may be lost if this broker is"
    )
