"""Whether a connection was reset, without a read: what lies in the socket stays there."""

import select
from typing import Protocol


class Descriptor(Protocol):
    """A socket, as far as the system knows it by a number."""

    def fileno(self) -> int: ...


def was_reset(connected: Descriptor) -> bool:
    """Whether the other side has closed both directions, or reset the connection. One that sends no
    more, and waits for answers, has not. Where the system cannot tell it is never known."""
    make = getattr(select, "poll", None)
    if make is None or connected.fileno() < 0:
        return False
    poll = make()
    poll.register(connected.fileno(), 0)
    gone = select.POLLERR | select.POLLHUP
    return any(flags & gone for _, flags in poll.poll(0))
