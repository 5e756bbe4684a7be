"""TLS layer between a transport and a protocol.

OpenSSL works on bytes in memory (`ssl.SSLObject`), in the callbacks of the plain transport. So
written bytes are in the buffer of that transport, whose flow control and buffer size work as
without TLS. Received bytes are decrypted at once, into the protocol's buffer.

    opening      the first byte has not arrived
    handshaking  the handshake is in progress
    open         the protocol has its transport
    closed       nothing is passed on any more
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final, Protocol, cast, runtime_checkable

from ..metrics.figures import count
from .tls_files import TlsPort

RECEIVED_BYTES: Final = 64 * 1024
"""Encrypted bytes received at a time, into a buffer shared by all connections."""

ENCRYPTED_BYTES: Final = 256 * 1024
"""Size of the pieces in which written data is encrypted. A larger piece would mean another copy of
all data."""

_HANDSHAKE_RECORD: Final = 0x16
_MAX_HANDSHAKE_BYTES: Final = 256 * 1024
"""Largest handshake of a client, including its certificates, for which OpenSSL accepts 100 KiB."""


@runtime_checkable
class EndsHandshake(Protocol):
    """A protocol whose connection can be closed before it has a transport."""

    end_handshake: Callable[[], None] | None


class TlsProtocol(asyncio.BufferedProtocol):
    """Protocol of the plain transport. After the handshake `above` gets a `TlsTransport`; if the
    handshake fails, `failed` is called with it."""

    def __init__(
        self,
        port: TlsPort,
        above: asyncio.BaseProtocol,
        failed: Callable[[asyncio.BaseProtocol], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._port = port
        self._above = above
        self._failed = failed
        self._loop = loop
        self._buffered = isinstance(above, asyncio.BufferedProtocol)
        self._state = _State.OPENING
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object: ssl.SSLObject | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._received = 0
        self._opened = False
        """Whether the protocol above has got its transport."""
        self._peer = "unknown"
        self._peer_name: str | None = None
        self.reading = True
        if isinstance(above, EndsHandshake):
            above.end_handshake = self._end_handshake

    # Callbacks of the plain transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._state is _State.CLOSED:
            self._transport.abort()
            return
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if peer else "unknown"
        self._timer = self._loop.call_later(self._port.seconds, self._refuse_late)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._port.slab)

    def buffer_updated(self, nbytes: int) -> None:
        received = memoryview(self._port.slab)[:nbytes]
        if self._state is _State.CLOSED:
            return
        if self._state is _State.OPENING and not self._begin(received):
            return
        self._incoming.write(received)
        if self._state is _State.HANDSHAKING:
            self._received += nbytes
            if self._received > _MAX_HANDSHAKE_BYTES:
                self._refuse("handshake_too_large", "the handshake is larger than any")
                return
            self._handshake()
        if self._state is _State.OPEN:
            self._read()

    def eof_received(self) -> bool:
        if self._state is not _State.OPEN:
            return False
        ended = self._above.eof_received()  # type: ignore[attr-defined]
        return bool(ended)

    def pause_writing(self) -> None:
        if self._state is _State.OPEN:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        if self._state is _State.OPEN:
            self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._state = _State.CLOSED
        if self._opened:
            self._above.connection_lost(exc)
        else:
            self._failed(self._above)
        self._transport = self._object = None

    # Methods for `TlsTransport`.

    @property
    def plain(self) -> asyncio.Transport | None:
        """The plain transport; None after the connection is lost."""
        return self._transport

    @property
    def peer_name(self) -> str | None:
        """Name from the client's verified certificate; None without a certificate."""
        return self._peer_name

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._state is not _State.OPEN or self._transport is None:
            return
        assert self._object is not None
        with memoryview(data) as view:
            for begin in range(0, len(view), ENCRYPTED_BYTES):
                self._object.write(view[begin : begin + ENCRYPTED_BYTES])
                self._flush()

    def close(self) -> None:
        """Send a TLS close notification, and close when all written data is sent."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._state is _State.OPEN:
            assert self._object is not None
            with contextlib.suppress(ssl.SSLError):
                # The client has not sent its own close notification yet, and need not.
                self._object.unwrap()
            self._flush()
        self._state = _State.CLOSED
        self._transport.close()

    def set_reading(self, reading: bool) -> None:
        self.reading = reading
        if self._transport is None or self._transport.is_closing():
            return
        if reading:
            self._transport.resume_reading()
            self._loop.call_soon(self._read)
        else:
            self._transport.pause_reading()

    # TLS operations.

    def _begin(self, received: memoryview) -> bool:
        """Start the handshake. Returns False if the first bytes are not TLS."""
        assert self._transport is not None
        if received[0] != _HANDSHAKE_RECORD:
            answer = self._port.plain_answer(bytes(received))
            if answer:
                self._transport.write(answer)
            self._refuse("not_tls", "the other side does not speak TLS, and this port is for it")
            return False
        context = self._port.files.context
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._state = _State.HANDSHAKING
        return True

    def _handshake(self) -> None:
        assert self._object is not None
        assert self._transport is not None
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()  # sends the alert
            self._refuse("handshake", f"the handshake failed: {error.reason or error}")
            return
        self._flush()
        if not self._named():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._state = _State.OPEN
        self._opened = True
        self._above.connection_made(TlsTransport(self))

    def _named(self) -> bool:
        """Read the name from the client's certificate. Returns False if it gives no valid name."""
        assert self._object is not None
        name_of = self._port.name_of
        certificate = None if name_of is None else self._object.getpeercert(binary_form=True)
        if not certificate:
            return True
        assert name_of is not None
        try:
            self._peer_name = name_of(certificate)
        except ValueError as error:
            self._refuse("name", f"the client's certificate gives no name: {error}")
            return False
        return True

    def _read(self) -> None:
        """Decrypt and pass on data until the protocol above stops reading."""
        while self.reading and self._state is _State.OPEN and self._object is not None:
            try:
                count_bytes = self._read_buffered() if self._buffered else self._read_bytes()
            except ssl.SSLWantReadError:
                return
            except ssl.SSLZeroReturnError:
                self._ended()
                return
            except ssl.SSLError as error:
                self._broken(error)
                return
            if not count_bytes:
                self._ended()
                return

    def _read_buffered(self) -> int:
        """Fill the protocol's buffer with available data. Raises an SSL error when there is
        none."""
        assert self._object is not None
        above = cast(asyncio.BufferedProtocol, self._above)
        buffer = above.get_buffer(-1)
        filled = 0
        with memoryview(buffer) as view:
            while filled < len(view):
                try:
                    got = self._object.read(len(view) - filled, view[filled:])
                except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                    if not filled:
                        raise
                    break
                filled += cast(int, got)
                if not got:
                    break
        if filled:
            above.buffer_updated(filled)
        return filled

    def _read_bytes(self) -> int:
        assert self._object is not None
        data = self._object.read(RECEIVED_BYTES)
        if data:
            cast(asyncio.Protocol, self._above).data_received(data)
        return len(data)

    def _ended(self) -> None:
        """Handle the client's close notification."""
        stays = self._above.eof_received()  # type: ignore[attr-defined]
        if not stays:
            self.close()

    def _broken(self, error: ssl.SSLError) -> None:
        self._port.observe(
            "connection_dropped", peer=self._peer, reason="tls", cause=str(error.reason or error)
        )
        count(self._port.figures.connections_dropped, "tls")
        assert self._transport is not None
        self._transport.abort()

    def _flush(self) -> None:
        if self._outgoing.pending and self._transport is not None:
            self._transport.write(self._outgoing.read())

    def _refuse_late(self) -> None:
        self._refuse(
            "handshake_late",
            f"the TLS handshake was not complete after {self._port.seconds:g} s "
            "(authentication.deadline.ms)",
        )
        if self._transport is not None:
            self._transport.abort()

    def _end_handshake(self) -> None:
        self._state = _State.CLOSED
        if self._transport is not None:
            self._transport.abort()

    def _refuse(self, reason: str, cause: str) -> None:
        assert self._transport is not None
        self._state = _State.CLOSED
        count(self._port.figures.tls_failures, reason)
        self._port.observe("tls_failed", peer=self._peer, reason=reason, cause=cause)
        self._transport.close()


class _State(Enum):
    OPENING = auto()
    HANDSHAKING = auto()
    OPEN = auto()
    CLOSED = auto()


class TlsTransport(asyncio.Transport):
    """Transport of the protocol above TLS."""

    def __init__(self, tls: TlsProtocol) -> None:
        super().__init__()
        self._tls = tls
        assert tls.plain is not None
        self._plain = tls.plain

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the plain transport's information; `tls` returns the `TlsProtocol`."""
        if name == "tls":
            return self._tls
        return self._plain.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._plain.is_closing()

    def close(self) -> None:
        self._tls.close()

    def abort(self) -> None:
        self._plain.abort()

    def is_reading(self) -> bool:
        return self._tls.reading

    def pause_reading(self) -> None:
        self._tls.set_reading(False)

    def resume_reading(self) -> None:
        self._tls.set_reading(True)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._plain.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self._plain.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._plain.get_write_buffer_limits()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._tls.write(data)

    def can_write_eof(self) -> bool:
        return False
