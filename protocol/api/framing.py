"""Frames out of a stream of bytes: a 4-byte big-endian length, then that many bytes.

No I/O: `FrameReader` offers the buffer that the next bytes are to be received into, and is told
how many came. It fits `asyncio.BufferedProtocol`.
"""

from typing import Final

from ..limits import GROWTH_FACTOR, LENGTH_BYTES, SLAB_BYTES

_HTTP_STARTS: Final = frozenset(
    (
        *(b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC"),
        b"PRI ",  # version 2
        b"HTTP",  # a response
    )
)


class ProtocolError(Exception):
    """The other side does not keep to the protocol: the connection is to be closed.

    Its text is the cause, for the log.
    """

    @property
    def cause(self) -> str:
        return str(self)


def foreign_protocol(start: bytes) -> str | None:
    """Name the other protocol that a connection's first four bytes belong to, if any."""
    if start[0] in (0x15, 0x16) and start[1] == 0x03:
        return "TLS"
    if start in _HTTP_STARTS:
        return "HTTP"
    if start == b"SSH-":
        return "SSH"
    return None


class FrameReader:
    """Splits what is received on one connection into frames.

    Small frames are received many at a time into one slab and handed out as bytes of their own;
    a frame larger than the slab is received into a bytearray of its own, which grows as the
    frame comes. Either stays as it is when more is received.
    """

    __slots__ = (
        "_end",
        "_large",
        "_limit_name",
        "_max_frame_bytes",
        "_opened",
        "_slab",
        "_start",
        "fault",
    )

    def __init__(
        self, max_frame_bytes: int, *, limit_name: str = "socket.request.max.bytes"
    ) -> None:
        """Accept frames of up to `max_frame_bytes`; `limit_name` is the setting that says so."""
        self._max_frame_bytes = max_frame_bytes
        self._limit_name = limit_name
        self._opened = False
        self._slab = bytearray(SLAB_BYTES)
        self._start = 0
        self._end = 0
        self._large: _LargeFrame | None = None
        self.fault: ProtocolError | None = None
        """Why nothing more can be received: what stands behind the frames that came."""

    @property
    def unfinished(self) -> bool:
        """True while a part of a frame is held."""
        return self._large is not None or self._end > self._start

    @property
    def held_bytes(self) -> int:
        """What the buffer of a large frame takes; 0 while there is none."""
        return 0 if self._large is None else len(self._large.data)

    def let_go(self) -> None:
        """Free the buffers; nothing is received any more."""
        self._slab = bytearray()
        self._large = None

    def get_buffer(self, hint: int = -1) -> memoryview:
        """Where to receive the next bytes; never empty. `hint` is asyncio's, and unused."""
        if self._large is not None:
            return self._large.room()
        return memoryview(self._slab)[self._end :]

    def received(self, count: int) -> list[bytes | bytearray]:
        """Take note of `count` bytes in the buffer, and return the frames they complete.

        The frames come without their length. What follows them may set `fault`, after which the
        reader is of no more use.
        """
        if self._large is not None:
            if not self._large.received(count):
                return []
            frame = self._large.data
            self._large = None
            return [frame]
        self._end += count
        return self._split()

    def _split(self) -> list[bytes | bytearray]:
        frames: list[bytes | bytearray] = []
        slab, start, end = self._slab, self._start, self._end
        try:
            while end - start >= LENGTH_BYTES:
                begin = start + LENGTH_BYTES
                after = begin + self._length(slab[start:begin])
                if after > end:
                    break
                frames.append(slab[begin:after])
                start = after
        except ProtocolError as fault:
            self.fault = fault
        self._start, self._end = start, end
        if self.fault is None:
            self._make_room()
        return frames

    def _length(self, head: bytes | bytearray) -> int:
        if not self._opened:
            foreign = foreign_protocol(bytes(head))
            if foreign is not None:
                raise ProtocolError(f"the other side speaks {foreign}, not Horolog's protocol")
            self._opened = True
        length = int.from_bytes(head, "big", signed=True)
        if not 0 < length <= self._max_frame_bytes:
            raise ProtocolError(
                f"a frame of {length} bytes; allowed are 1 to {self._max_frame_bytes} "
                f"({self._limit_name})"
            )
        return length

    def _make_room(self) -> None:
        """Move the unfinished frame where the rest of it fits."""
        start, end = self._start, self._end
        held = end - start
        if held == 0:
            self._start = self._end = 0
        elif held == SLAB_BYTES:
            with memoryview(self._slab) as view:
                length = self._length(bytes(view[:LENGTH_BYTES]))
                self._large = _LargeFrame(length, view[LENGTH_BYTES:])
            self._start = self._end = 0
        elif end == SLAB_BYTES:
            self._slab[:held] = self._slab[start:end]
            self._start, self._end = 0, held


class _LargeFrame:
    """A frame that is larger than the slab, as far as it has come."""

    __slots__ = ("_filled", "_length", "data")

    def __init__(self, length: int, beginning: memoryview) -> None:
        self._length = length
        self._filled = 0
        self.data = bytearray()
        self._grow(beginning)
        self._filled = len(beginning)

    def room(self) -> memoryview:
        """The part of the buffer not yet filled; never empty."""
        return memoryview(self.data)[self._filled :]

    def received(self, count: int) -> bool:
        """Take note of `count` more bytes; True when the frame is complete."""
        self._filled += count
        if self._filled == self._length:
            return True
        if self._filled == len(self.data):
            self._grow(self.data)
        return False

    def _grow(self, content: bytearray | memoryview) -> None:
        # A new buffer: the caller may still hold a view of the old one, which forbids resizing.
        grown = bytearray(min(self._length, len(content) * GROWTH_FACTOR))
        grown[: len(content)] = content
        self.data = grown
