"""Messages of a producer that wait to be sent as one set, and their byte budget."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from ...layout import ENTRY_OVERHEAD, MESSAGE_OVERHEAD, NO_TIMESTAMP

_OVERHEAD: Final = ENTRY_OVERHEAD + MESSAGE_OVERHEAD[1]

W = TypeVar("W")


class ByteRoom:
    """Byte budget of waiting messages; it grants nothing while it is `held`."""

    __slots__ = ("held", "limit_bytes", "taken_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.taken_bytes = 0
        self.held = False

    def take(self, size_bytes: int) -> bool:
        """Take bytes of the budget if they are free and it is not held; returns whether."""
        if self.held or self.taken_bytes + size_bytes > self.limit_bytes:
            return False
        self.taken_bytes += size_bytes
        return True


class Collected:
    """Messages as columns, with a future for each, which gets the message's offset."""

    __slots__ = ("keys", "size_bytes", "times_ms", "values", "waiters")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.times_ms: list[int] = []
        self.waiters: list[Any] = []
        self.size_bytes = 0

    def add(
        self,
        value: object,
        key: object,
        time_ms: int,
        limit_bytes: int,
        room: ByteRoom,
        new_waiter: Callable[[], Any],
    ) -> Any:
        """Add a message and return its waiter; `None` if the caller must check it or wait.

        `None` means that key or value is not `bytes`, that the set would exceed `limit_bytes`, or
        that the budget is used up.
        """
        size_bytes = _OVERHEAD
        for content in (value, key):
            if content is not None:
                if type(content) is not bytes:
                    return None
                size_bytes += len(content)
        if self.size_bytes + size_bytes > limit_bytes or not room.take(size_bytes):
            return None
        return self.append(value, key, time_ms, size_bytes, new_waiter())  # type: ignore[arg-type]

    def append(
        self, value: bytes | None, key: bytes | None, time_ms: int, size_bytes: int, waiter: W
    ) -> W:
        """Add a message of `size_bytes` and return its waiter."""
        self.keys.append(key)
        self.values.append(value)
        self.times_ms.append(time_ms)
        self.waiters.append(waiter)
        self.size_bytes += size_bytes
        return waiter

    def place(
        self,
        begin: int,
        end: int,
        made_of: type[tuple[Any, ...]],
        target: tuple[str, int],
        base_offset: int,
        time_ms: int,
        expired_before_ms: int = NO_TIMESTAMP,
    ) -> None:
        """Complete the waiters of the rows from `begin` to `end` with the places of their messages.

        A place is a tuple of class `made_of`: topic, partition, offset, time, and whether the
        message's own time is before `expired_before_ms`. The time is `time_ms` or, if that is -1,
        the message's own; -1 becomes `None`. `base_offset` is the offset of the first row, or -1
        for all rows. Waiters that are done are skipped. Each waiter
        is dropped at once, so that the garbage collector has nothing to do.
        """
        if not issubclass(made_of, tuple) or len(target) != 2:
            raise TypeError("a place is a tuple with two fields of the target")
        for row in range(max(begin, 0), min(end, len(self.waiters), len(self.times_ms))):
            own_ms = self.times_ms[row] if time_ms == NO_TIMESTAMP else time_ms
            offset = base_offset + row if base_offset >= 0 else base_offset
            expired = NO_TIMESTAMP < self.times_ms[row] < expired_before_ms
            fields = (*target, offset, None if own_ms == NO_TIMESTAMP else own_ms, expired)
            waiter, self.waiters[row] = self.waiters[row], None
            if waiter is not None and not waiter.done():
                waiter.set_result(tuple.__new__(made_of, fields))
