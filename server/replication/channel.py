"""A follower's connection, as its leader sees it."""

import asyncio
from collections import deque
from collections.abc import Sequence

from ...protocol.api.cluster.replicate import ReplicateResponse
from ...replication.messages import FollowerPosition
from ...replication.partition_log import Partition
from ...storage.metadata.state_copy import StateReading
from ...values import value_class
from ..parking import Wait


@value_class
class Known:
    """The addresses that a broker gave."""

    address: str
    kafka_address: str


class Channel:
    """The answers on a connection that a follower opened, and whether it waits for one.

    Answers go in the order in which they were made: each fetch is answered with one.
    """

    def __init__(self, number: int, broker_id: int, now_s: float) -> None:
        self.number = number
        self.broker_id = broker_id
        self.last_seen_s = now_s
        """When the last request of the follower came."""
        self.closed = False
        """Whether nothing that comes from it counts any more."""
        self.listed: Sequence[tuple[int, Known]] = []
        """The followers that its last list had, with their addresses."""
        self.unplaced: dict[Partition, tuple[str, FollowerPosition]] = {}
        """By partition, topic ids and positions of a topic that is not known here, yet."""
        self.state: StateReading | None = None
        """What is read of the metadata log's stored state, for a copy that begins there."""
        self._outbox: deque[ReplicateResponse] = deque()
        self._reading: asyncio.Future[None] | None = None
        """What the last answer waits for; no other is made before."""
        self._waiting: Wait | None = None

    @property
    def waits(self) -> bool:
        """Whether the follower waits for an answer."""
        return self._waiting is not None and not self._waiting.done()

    @property
    def has_answer(self) -> bool:
        if len(self._outbox) == 1 and self._reading is not None:
            return self._reading.done()
        return bool(self._outbox)

    def say(self, response: ReplicateResponse) -> None:
        """Answer the fetch that waits, or the next one."""
        self._outbox.append(response)
        self._wake()

    def say_later(
        self,
        response: ReplicateResponse,
        reading: "asyncio.Future[None]",
        instead: ReplicateResponse,
    ) -> None:
        """The same once `reading` is done; if that fails, `instead`."""
        self._outbox.append(response)
        self._reading = reading

        def read(done: "asyncio.Future[None]") -> None:
            self._reading = None
            if (done.cancelled() or done.exception() is not None) and response in self._outbox:
                self._outbox[self._outbox.index(response)] = instead
            self._wake()

        reading.add_done_callback(read)

    def wait(self) -> Wait:
        """Over when there is an answer, which goes out within the call that makes it: a follower
        copies while the leader goes on. Cancelled when the connection is lost."""
        self._wake()
        self._waiting = Wait()
        return self._waiting

    def take(self) -> ReplicateResponse | None:
        """The next answer."""
        return self._outbox.popleft() if self._outbox else None

    def close(self) -> None:
        """Take nothing more from it; answers that were made before can still be taken."""
        self.closed = True
        self._wake()
        if self._reading is None:
            self._close_state()
        else:
            self._reading.add_done_callback(lambda _: self._close_state())

    def _close_state(self) -> None:
        if self.state is not None:
            self.state.close()
            self.state = None

    def _wake(self) -> None:
        if self._waiting is not None:
            self._waiting.set_result(None)
