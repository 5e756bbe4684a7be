"""What programs write, read while they run."""

import os
import select
from typing import IO


class Lines:
    """Whole lines of a pipe, as far as they have come."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._rest = b""
        os.set_blocking(pipe.fileno(), False)

    def take(self, wait_seconds: float) -> list[str]:
        if select.select([self._pipe], [], [], wait_seconds)[0]:
            self._rest += self._pipe.read(64 << 10) or b""
        *lines, self._rest = self._rest.split(b"\n")
        return [line.decode() for line in lines]
