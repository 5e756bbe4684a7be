"""Standard input, line by line, without making the event loop wait for it."""

import asyncio
import os
import threading
from typing import Final

from .errors import CommandFailed

_READ_BYTES: Final = 64 * 1024
_CHUNKS_AHEAD: Final = 4
"""What is read ahead of the sending; a broker slower than the input holds the input back."""

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""A line is held in memory until its end comes. No broker takes a message of this size."""


THREAD_NAME: Final = "stdin"


class StandardInput:
    """Reads a file descriptor in a thread, which ends with the input, after `close`, or with the
    process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._room = threading.Semaphore(_CHUNKS_AHEAD)
        self._begun: list[bytes] = []
        self._begun_bytes = 0
        self._ended = False
        self._closed = False
        # A daemon: nothing could wake it from a read of a terminal.
        threading.Thread(target=self._read, name=THREAD_NAME, daemon=True).start()

    async def lines(self) -> list[bytes] | None:
        """The next lines, without their ends; None after the last. A last line may lack its end.

        Cancelling it loses nothing. Raises CommandFailed when the input cannot be read.
        """
        if self._ended:
            return None
        chunk = await self._chunks.get()
        self._room.release()
        if isinstance(chunk, OSError):
            raise CommandFailed(f"standard input cannot be read: {chunk.strerror}")
        if not chunk:
            self._ended = True
            return [b"".join(self._begun)] if self._begun else None
        *whole, begun = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join((*self._begun, whole[0]))
            self._begun.clear()
            self._begun_bytes = 0
        if begun:
            self._begun.append(begun)
            self._begun_bytes += len(begun)
            if self._begun_bytes > MAX_LINE_BYTES:
                raise CommandFailed(
                    f"a line of standard input is longer than {MAX_LINE_BYTES} bytes"
                )
        return whole

    def stop(self) -> None:
        """Read no further: `lines` gives what it has, then None."""
        self._chunks.put_nowait(b"")

    def close(self) -> None:
        """Begin no other read. The thread ends unless it is in the middle of one."""
        self._closed = True
        self._room.release()

    def _read(self) -> None:
        chunk: bytes | OSError = b"\n"
        while chunk and not isinstance(chunk, OSError):
            self._room.acquire()
            if self._closed:
                return
            try:
                # Not through sys.stdin, whose lock would be held while the interpreter ends.
                chunk = os.read(self._descriptor, _READ_BYTES)
            except OSError as error:
                chunk = error
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the loop is closed: the command has ended
