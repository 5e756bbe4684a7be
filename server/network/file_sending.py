"""Sending answers whose record sets are in files, without copying the bytes through Python.

The system copies from the file into the socket (`sendfile`), bypassing the transport. This is
possible only while the transport's buffer is empty. When the socket is full, the next few bytes go
through the transport, which reports when the socket has taken them.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ...protocol.api.writing import InMemory, Part
from ...storage.files import File
from ...storage.read.slices import FileRange

InThread = Callable[[Callable[[], None]], asyncio.Future[None]]

TURN_BYTES: Final = 1 << 20
"""Bytes sent, or checked for being in memory, before the event loop serves other connections."""

MIN_FILE_RANGE_BYTES: Final = 128 * 1024
"""Record sets from this size on are sent from their file: at 64 KiB that takes 1.4 times the
processor time of reading them, at 1 MiB less than a fifth."""

MAX_FILE_RANGES: Final = 16
"""Largest number of record sets of one answer that are sent from their files; each needs a
handle."""

PILOT_BYTES: Final = 16 << 10
"""Bytes sent through the transport when the socket is full."""

_AT_ONCE: Final = int(socket.MSG_DONTWAIT)
_WITH_MORE: Final = int(getattr(socket, "MSG_MORE", 0) | socket.MSG_DONTWAIT)
"""Socket flags as ints: combining two flag objects takes as long as sending some bytes."""


class FileChanged(Exception):
    """Bytes of an answer are no longer in the file, so the rest of the answer cannot be sent."""


class FileSender:
    """Sends the parts of one connection's answers in order, as the socket accepts them."""

    def __init__(
        self, transport: asyncio.Transport, in_thread: InThread, go_on: Callable[[], None]
    ) -> None:
        """`go_on` is called when `send` can continue. It is not called for a full transport, which
        reports that itself."""
        self._transport = transport
        self._in_thread = in_thread
        self._go_on = go_on
        self._limits = transport.get_write_buffer_limits()
        self._says_when_sent = False
        self.parts: deque[Part] = deque()
        """Parts still to be sent."""
        self.memory_bytes = 0
        """Bytes of these parts that are in the broker's memory."""
        self._sent = 0  # bytes of the first file range
        self._in_memory = 0  # bytes of the first file range known to be in memory
        self._waiting = False  # for a thread, or for the event loop
        self._socket: socket.socket | None = None

    def add(self, parts: Sequence[Part], memory_bytes: int) -> None:
        """Append parts; `memory_bytes` of them are in the broker's memory."""
        self.parts.extend(parts)
        self.memory_bytes += memory_bytes

    def close(self) -> None:
        """Drop all parts, because the connection is gone."""
        self.parts.clear()
        self.memory_bytes = 0
        if self._socket is not None:
            self._socket.detach()
            self._socket = None

    def send(self) -> None:
        """Send as much as the socket accepts.

        Raises `FileChanged`, or `OSError` when a file cannot be read.
        """
        transport, parts = self._transport, self.parts
        budget = TURN_BYTES
        while parts and not self._waiting and not transport.is_closing():
            if transport.get_write_buffer_size():
                # With a limit of 0, the transport reports only when its buffer is empty.
                if not self._says_when_sent:
                    self._says_when_sent = True
                    transport.set_write_buffer_limits(high=0)
                return
            part = parts[0]
            if not isinstance(part, FileRange):
                assert isinstance(part, InMemory)
                parts.popleft()
                self.memory_bytes -= len(part)
                self._send_bytes(part)
            elif budget <= 0:
                self._rest()
                return
            elif self._sent < self._in_memory or self._look_in_memory(part):
                budget -= self._send_stretch(part)
        if not parts and self._says_when_sent:
            self._says_when_sent = False
            low, high = self._limits
            transport.set_write_buffer_limits(high=high, low=low)

    def _send_bytes(self, data: InMemory) -> None:
        """Send bytes, in one packet with those of a file if a file range follows."""
        try:
            sent = self._raw_socket().send(data, _WITH_MORE if self.parts else _AT_ONCE)
        except BlockingIOError:
            sent = 0
        except ConnectionError:
            self._transport.abort()
            return
        if sent < len(data):
            self._transport.write(data[sent:])

    def _raw_socket(self) -> socket.socket:
        """Return the transport's socket in a form that can send. The transport keeps owning it."""
        if self._socket is None:
            shown = self._transport.get_extra_info("socket")
            fd = shown.fileno()
            self._socket = socket.socket(shown.family, shown.type, shown.proto, fileno=fd)
        return self._socket

    def _send_stretch(self, stretch: FileRange) -> int:
        """Send the part of a file range that is in memory, as far as the socket accepts it. Returns
        the number of bytes sent."""
        if not stretch.intact:
            raise FileChanged("the end of a log was cut off while it was being sent")
        target, source = self._raw_socket().fileno(), stretch.file.fileno()
        begin, end = stretch.position + self._sent, stretch.position + self._in_memory
        position = begin
        try:
            while position < end:
                sent = os.sendfile(target, source, position, end - position)
                if not sent:
                    raise _shorter(stretch)
                position += sent
        except BlockingIOError:
            pilot = stretch.file.pread(min(end - position, PILOT_BYTES), position)
            if not pilot:
                raise _shorter(stretch) from None
            self._transport.write(pilot)
            position += len(pilot)
        except ConnectionError:
            self._transport.abort()
            return 0
        self._advance(position - begin, stretch)
        return position - begin

    def _advance(self, sent: int, stretch: FileRange) -> None:
        self._sent += sent
        if self._sent == len(stretch):
            self.parts.popleft()
            self._sent = self._in_memory = 0

    def _look_in_memory(self, stretch: FileRange) -> bool:
        """Whether the next bytes of a file range are in memory. If not, a thread starts to load
        them."""
        size = min(len(stretch) - self._sent, TURN_BYTES)
        position = stretch.position + self._sent
        if stretch.file.in_memory(size, position):
            self._in_memory = self._sent + size
            return True
        self._waiting = True
        loading = self._in_thread(partial(_load, stretch.file, size, position))
        loading.add_done_callback(partial(self._loaded, self._sent + size))
        return False

    def _loaded(self, in_memory: int, loading: asyncio.Future[Any]) -> None:
        self._waiting = False
        if not loading.cancelled():
            loading.exception()  # sending meets the same error
        if self.parts:
            self._in_memory = in_memory
            self._go_on()

    def _rest(self) -> None:
        """Continue in the next pass of the event loop, after other connections."""
        self._waiting = True

        def go_on() -> None:
            self._waiting = False
            self._go_on()

        asyncio.get_running_loop().call_soon(go_on)


def _shorter(stretch: FileRange) -> FileChanged:
    """Report a truncated log file, and return the error that ends the answer."""
    stretch.found_short()
    return FileChanged("a log file is shorter than it was")


def _load(file: File, size: int, position: int) -> None:
    file.load(size, position)


PIECE_BYTES: Final = 64 << 10
"""Bytes that are read, encrypted and given to the transport at a time."""


class EncryptedFileSender(FileSender):
    """Sends parts as `FileSender` does, with every byte through the TLS transport."""

    def _send_bytes(self, data: InMemory) -> None:
        self._transport.write(data)

    def _send_stretch(self, stretch: FileRange) -> int:
        if not stretch.intact:
            raise FileChanged("the end of a log was cut off while it was being sent")
        position = stretch.position + self._sent
        size = min(self._in_memory - self._sent, PIECE_BYTES)
        piece = stretch.file.pread(size, position)
        if not piece:
            raise _shorter(stretch)
        self._transport.write(piece)
        self._advance(len(piece), stretch)
        return len(piece)
