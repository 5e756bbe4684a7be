"""Turns lines of standard input, or of the command line, into messages to send. Reading does not
block the event loop.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Sequence
from typing import Final

from ..client.json_lines import MAX_LINE_BYTES, InvalidLine, Message, parse_message
from ..protocol.records.messages.sets import NewRecord
from .errors import CommandFailed
from .options import refused

_READ_BYTES: Final = 64 * 1024
_CHUNKS_AHEAD: Final = 4
"""Chunks read ahead of sending; if the broker is slower than the input, reading waits."""

THREAD_NAME: Final = "stdin"


class StandardInput:
    """Reads lines from a file descriptor in a thread. The thread ends with the input, after
    `close`, or with the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._room = threading.Semaphore(_CHUNKS_AHEAD)
        self._begun: list[bytes] = []
        self._begun_bytes = 0
        self._ended = False
        self._closed = False
        # A daemon thread, because nothing can interrupt its read from a terminal.
        threading.Thread(target=self._read, name=THREAD_NAME, daemon=True).start()

    async def lines(self) -> list[bytes] | None:
        """Return the next lines, without their newlines; None after the last line, which may lack
        a newline.

        A cancelled call loses no lines. Raises CommandFailed if the input cannot be read or a line
        is too long.
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
        """End the input: `lines` returns what was read, then None."""
        self._chunks.put_nowait(b"")

    def close(self) -> None:
        """Begin no further read. The thread ends, unless a read blocks it."""
        self._closed = True
        self._room.release()

    def _read(self) -> None:
        chunk: bytes | OSError = b"\n"
        while chunk and not isinstance(chunk, OSError):
            self._room.acquire()
            if self._closed:
                return
            try:
                # sys.stdin is not used: the thread would hold its lock while the interpreter exits.
                chunk = os.read(self._descriptor, _READ_BYTES)
            except OSError as error:
                chunk = error
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the loop is closed: the command has ended


class GivenLines:
    """Lines that the command line has, in place of standard input."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._left = deque(lines)

    async def lines(self) -> list[bytes] | None:
        """Return the next line; None after the last one."""
        return [self._left.popleft()] if self._left else None

    def stop(self) -> None:
        """End the input before its next line."""
        self._left.clear()

    def close(self) -> None:
        """Do nothing: there is no file to close."""


class BadLine(CommandFailed):
    """A line of input is not a message."""


def plain_message(line: bytes, now_ms: int) -> Message:
    """Make a message whose value is the line."""
    return Message(NewRecord(line, None, now_ms))


def keyed_message(line: bytes, number: int, separator: bytes, now_ms: int) -> Message:
    """Make a message of a line with key, separator and value; the first separator counts. Raises
    BadLine, which names line `number`."""
    key, found, value = line.partition(separator)
    if not found:
        raise BadLine(
            f"line {number} has no {separator.decode('utf-8', 'backslashreplace')!r} between key "
            "and value (--key-separator)"
        )
    return Message(NewRecord(value, key, now_ms))


def json_message(line: bytes, number: int, now_ms: int, any_unit: bool = False) -> Message:
    """Parse a line as `parse_message` does. Raises BadLine."""
    try:
        return parse_message(line, number, now_ms, any_unit, refused)
    except InvalidLine as error:
        raise BadLine(str(error)) from None
