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
        os.set_blocking(pipe.fileno(), False)

    def take(self, wait_seconds: float) -> list[str]:
        # Not `select`, which takes no file above number 1023.
        if self._poll.poll(wait_seconds * 1000):
            self._rest += self._pipe.read(64 << 10) or b""
        *lines, self._rest = self._rest.split(b"\n")
        return [line.decode() for line in lines]
