"""Detection of reset connections without reading from them."""

import select
from typing import Protocol


class Descriptor(Protocol):
    """A socket with a file descriptor."""

    def fileno(self) -> int: ...


def was_reset(connected: Descriptor) -> bool:
    """Whether the peer has closed both directions or reset the connection. A peer that only stopped
    sending, and waits for answers, has not. False where the system cannot tell."""
    make = getattr(select, "poll", None)
    if make is None or connected.fileno() < 0:
        return False
    poll = make()
    poll.register(connected.fileno(), 0)
    gone = select.POLLERR | select.POLLHUP
    return any(flags & gone for _, flags in poll.poll(0))
