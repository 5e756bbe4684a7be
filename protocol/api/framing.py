"""Splits a stream of bytes into frames: a 4-byte big-endian length, then that many bytes.

No I/O: `FrameReader` offers the buffer for the next bytes, and its caller reports how many were
received. It fits `asyncio.BufferedProtocol`.
"""

from collections import deque
from typing import Final

from ..errors import HorologError
from ..limits import GROWTH_FACTOR, LENGTH_BYTES, ONE_READ_BYTES, SLAB_BYTES
from ..records.kernel import grown_buffer, split_frames
from ..records.layout import Slab

_HTTP_STARTS: Final = frozenset(
    (
        *(b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC"),
        b"PRI ",  # version 2
        b"HTTP",  # a response
    )
)


Frame = bytes | bytearray | memoryview
"""A request or a response, without its length."""


class ProtocolError(HorologError):
    """The other side violates the protocol, and the connection has to be closed.

    The text is the cause, for the log.
    """

    @property
    def cause(self) -> str:
        return str(self)


class ForeignProtocol(ProtocolError):
    """The other side speaks another protocol, called `name`."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


def foreign_protocol(start: bytes) -> str | None:
    """Return the name of the other protocol that a connection's first four bytes belong to, if
    any."""
    if start[0] in (0x15, 0x16) and start[1] == 0x03:
        return "TLS"
    if start in _HTTP_STARTS:
        return "HTTP"
    if start == b"SSH-":
        return "SSH"
    return None


class FrameReader:
    """Splits the bytes received on one connection into frames.

    Many frames at a time are received into a slab. The start of an incomplete frame is stored
    separately, so that connections can share a slab. Once that start is large, the rest of the
    frame is received into a bytearray of its own, which grows as data arrive.
    """

    __slots__ = (
        "_beginning",
        "_large",
        "_limit_name",
        "_max_frame_bytes",
        "_opened",
        "_protocol",
        "_slab",
        "_spares",
        "_window",
        "fault",
        "unfinished",
    )

    def __init__(
        self,
        max_frame_bytes: int,
        *,
        limit_name: str = "socket.request.max.bytes",
        protocol: str = "Horolog's protocol",
        slab: bytearray | None = None,
        spares: deque[bytearray] | None = None,
    ) -> None:
        """Accept frames of up to `max_frame_bytes`. `limit_name` is the setting of that limit, and
        `protocol` the name of this port's protocol; both are for error texts.

        `slab` has at least `SLAB_BYTES`. Readers may share a slab if no other reader receives
        between `get_buffer` and `received`. `spares` holds buffers that were given back, as many as
        its maximum length; readers may share it. A reader without a shared one keeps one buffer.
        """
        self._max_frame_bytes = max_frame_bytes
        self._limit_name = limit_name
        self._protocol = protocol
        self._opened = False
        self._slab = bytearray(SLAB_BYTES) if slab is None else slab
        self._window = len(self._slab)
        """Bytes of the slab that are offered. After a frame that did not fit, another one is
        expected, of which little should have to be copied."""
        self._beginning = b""
        self._large: _LargeFrame | None = None
        self._spares: deque[bytearray] = deque(maxlen=1) if spares is None else spares
        """Buffers that were given back; the next large frame is received into one of them."""
        self.unfinished = False
        """Whether a part of a frame is held."""
        self.fault: ProtocolError | None = None
        """Why nothing more can be received: the bytes after the last complete frame are invalid."""

    def allow(self, max_frame_bytes: int, limit_name: str) -> None:
        """Change the limit on frame sizes, and the setting that it comes from."""
        self._max_frame_bytes = max_frame_bytes
        self._limit_name = limit_name

    @property
    def held_bytes(self) -> int:
        """Size of the buffer of a large frame; 0 while there is none."""
        return 0 if self._large is None else len(self._large.data)

    def give_back(self, frame: bytearray) -> None:
        """Reuse the memory of this frame for a later large frame, if no view of it exists then.

        Allocating new memory costs more than processing the frame.
        """
        self._spares.append(frame)

    def let_go(self) -> None:
        """Free the buffers. Nothing can be received after this."""
        self._slab = bytearray()
        self._spares = deque(maxlen=0)
        self._window = 0
        self._beginning = b""
        self._large = None
        self.unfinished = False

    def get_buffer(self, hint: int = -1) -> memoryview:
        """Return the buffer for the next bytes, which is never empty. `hint` comes from asyncio and
        is unused."""
        if self._large is not None:
            return self._large.room()
        held = len(self._beginning)
        if held:
            _copy(self._beginning, self._slab)
        return memoryview(self._slab)[held : self._window]

    def received(self, count: int) -> list[bytearray]:
        """Record `count` received bytes, and return the frames that they complete.

        The frames come without their length. Bytes after them may set `fault`; the reader is of no
        use then.
        """
        return self._received(count, self._slab)

    def received_views(self, count: int) -> list[bytearray | memoryview]:
        """Like `received`, but the frames may be views of the slab, valid until something else is
        received into it."""
        return self._received(count, memoryview(self._slab))

    def _received(self, count: int, content: Slab) -> list[bytearray | Slab]:
        if self._large is not None:
            if not self._large.received(count):
                return []
            frame = self._large.data
            self._large = None
            self.unfinished = False
            return [frame]
        if self._opened and not self._beginning:
            length = int.from_bytes(content[:LENGTH_BYTES], "big")
            if count == LENGTH_BYTES + length and 0 < length <= self._max_frame_bytes:
                # A single frame, as sent by clients that wait for the answer to each request.
                self._window = len(self._slab)
                return [content[LENGTH_BYTES:count]]
        return self._split(len(self._beginning) + count, content)

    def _split(self, end: int, content: Slab) -> list[bytearray | Slab]:
        slab = self._slab
        frames: list[bytearray | Slab] = []
        start = length = 0
        try:
            if not self._opened and end >= LENGTH_BYTES:
                self._open(slab[:LENGTH_BYTES])
            frames, start, length = split_frames(content, end, self._max_frame_bytes)
            if start == end:
                self._window = len(slab)
                self._beginning = b""
                self.unfinished = False
                return frames
            if start + LENGTH_BYTES <= end and not 0 < length <= self._max_frame_bytes:
                raise ProtocolError(
                    f"a frame of {length} bytes; allowed are 1 to {self._max_frame_bytes} "
                    f"({self._limit_name})"
                )
        except ProtocolError as fault:
            self.fault = fault
        with memoryview(slab) as view:
            if self.fault is not None:
                self._beginning = b""
            elif end - start >= SLAB_BYTES:
                self._beginning = b""
                beginning = view[start + LENGTH_BYTES : end]
                self._large = _LargeFrame(length, beginning, self._take_spare(length))
                self._window = SLAB_BYTES if length > len(slab) else len(slab)
            else:
                self._window = len(slab)
                self._beginning = bytes(view[start:end])
        self.unfinished = self._large is not None or bool(self._beginning)
        return frames

    def _take_spare(self, length: int) -> bytearray:
        """Return a spare buffer of exactly `length` bytes; an empty one if no spare has about that
        size."""
        spare = self._spares.pop() if self._spares else bytearray()
        if not length <= len(spare) + len(spare) // 8 <= 2 * length:
            return bytearray()
        try:
            spare.append(0)  # fails while there are views of the buffer
        except BufferError:
            return bytearray()
        del spare[length:]
        spare.extend(bytes(length - len(spare)))
        return spare

    def _open(self, start: bytearray) -> None:
        """Raise `ForeignProtocol` if the first four bytes belong to another protocol."""
        foreign = foreign_protocol(bytes(start))
        if foreign is not None:
            raise ForeignProtocol(foreign, f"the other side speaks {foreign}, not {self._protocol}")
        self._opened = True


class _LargeFrame:
    """The received part of a frame that is larger than the slab."""

    __slots__ = ("_filled", "_length", "data")

    def __init__(self, length: int, beginning: memoryview, spare: bytearray) -> None:
        """`spare` has the frame's length, or is empty."""
        self._length = length
        self._filled = len(beginning)
        self.data = spare
        if spare:
            _copy(beginning, spare)
        else:
            self._grow(beginning)

    def room(self) -> memoryview:
        """Return the part of the buffer to fill next, which is never empty.

        On a fast connection one read fills everything that it is offered, in one turn of the event
        loop.
        """
        return memoryview(self.data)[self._filled : self._filled + ONE_READ_BYTES]

    def received(self, count: int) -> bool:
        """Record `count` more bytes. Returns whether the frame is complete."""
        self._filled += count
        if self._filled == self._length:
            return True
        if self._filled == len(self.data):
            self._grow(self.data)
        return False

    def _grow(self, content: bytearray | memoryview) -> None:
        # A new buffer: the caller may still hold a view of the old one, which forbids resizing.
        step = len(content) * GROWTH_FACTOR if len(content) < ONE_READ_BYTES else self._length
        self.data = grown_buffer(content, min(self._length, step))


def _copy(content: Frame, target: bytearray) -> None:
    """Copy to the start of `target`. Copying a view by assignment to a slice would copy it
    twice."""
    with memoryview(target) as view:
        view[: len(content)] = content
