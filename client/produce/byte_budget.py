"""A bound on the bytes that wait for the broker: who would exceed it waits."""

import asyncio
from collections import deque

from ...protocol.records.kernel import ByteRoom


class ByteBudget(ByteRoom):
    """A byte budget: requests for bytes are granted in order of arrival."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        """Waiting requests and their sizes; the budget is `held` while there are any."""

    async def wait(self, size_bytes: int) -> None:
        """Take it as soon as it is free. Raises ValueError for more than there is."""
        if size_bytes > self.limit_bytes:
            raise ValueError(
                f"a message of {size_bytes} bytes does not fit into the producer's buffer: "
                f"buffer_bytes is {self.limit_bytes}"
            )
        if self.take(size_bytes):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        self.held = True
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._let_in()  # the one behind may need less
            else:
                self.give(size_bytes)  # taken, and then not wanted
            raise

    def give(self, size_bytes: int) -> None:
        """Give back what was taken."""
        self.taken_bytes -= size_bytes
        self._let_in()

    def end(self, error: Exception) -> None:
        """Fail everybody who waits."""
        while self._waiting:
            _, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(error)
        self.held = False

    def _let_in(self) -> None:
        while self._waiting:
            size_bytes, turn = self._waiting[0]
            if not turn.done():
                if self.taken_bytes + size_bytes > self.limit_bytes:
                    return
                self.taken_bytes += size_bytes
                turn.set_result(None)
            self._waiting.popleft()
        self.held = False
