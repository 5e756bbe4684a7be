"""The waits of clients until all in-sync replicas have a set."""

from collections.abc import Callable

from ...protocol.errors import (
    CodedError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
)
from ...replication.effects import Outcome


class Commit:
    """The wait for one set, or for a trim. It is the token that `replication/` knows it by."""

    __slots__ = ("_on_settled", "done", "error")

    def __init__(self, on_settled: Callable[[CodedError | None], None] | None = None) -> None:
        """`on_settled` is called with the error, if there is one, once the outcome is known."""
        self._on_settled = on_settled
        self.done = False
        self.error: CodedError | None = None
        """The error of the answer, if the outcome is not what the client asked for."""

    def settle(self, outcome: Outcome, leader_hint: str) -> None:
        """The outcome is known. `leader_hint` says who leads."""
        self.done = True
        if outcome is not Outcome.DONE:
            self.error = error_of(outcome, leader_hint)
        if self._on_settled is not None:
            self._on_settled(self.error)


def error_of(outcome: Outcome, leader_hint: str) -> CodedError:
    """The error of the answer to a client that was not served."""
    if outcome is Outcome.NOT_LEADER:
        return NotLeader(leader_hint)
    if outcome is Outcome.NOT_ENOUGH_REPLICAS:
        return NotEnoughReplicas(
            "fewer brokers are in sync than min.insync.replicas; nothing was done "
            "(horolog cluster status)"
        )
    return NotEnoughReplicasAfterAppend(
        "fewer brokers are in sync than min.insync.replicas; the messages are in the log, "
        "and may be lost if this broker is"
    )
