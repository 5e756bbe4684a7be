"""What programs write, read while they run."""

import os
import select
from typing import IO


class Lines:
    """Whole lines of a pipe, as far as they have come."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._rest = b""
        self._poll = select.poll()
        self._poll.register(pipe, select.POLLIN)

    def take(self, wait_seconds: float) -> list[str]:
        # Not `select`, which takes no file above number 1023.
        if self._poll.poll(wait_seconds * 1000):
            # Past Python's buffer: what that keeps back the next poll does not tell of.
            self._rest += os.read(self._pipe.fileno(), 64 << 10)
        *lines, self._rest = self._rest.split(b"\n")
        return [line.decode() for line in lines]
