"""The answer to a client that speaks to an encrypted port without TLS, in the client's protocol."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ...protocol.api.framing import ProtocolError
from ...protocol.api.native import frames as native
from ...protocol.errors import IllegalSaslState
from ...protocol.limits import LENGTH_BYTES
from ..network.ports import HTTP, KAFKA, NATIVE

_TEXT: Final = "this port takes encrypted connections only: connect with TLS (tls://)"
_BODY: Final = f"{_TEXT[: -len('(tls://)')]}(https://)\n"


def _to_native(received: bytes) -> bytes:
    """An error, as the answer to the first request, where that has come."""
    try:
        head, _ = native.open_request(received[LENGTH_BYTES:])
    except ProtocolError:
        return b""
    return native.encode_error(head.correlation_id, IllegalSaslState.code, _TEXT)


def _to_http(_: bytes) -> bytes:
    head = (
        "HTTP/1.1 400 Bad Request",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(_BODY)}",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        "",
        _BODY,
    )
    return "\r\n".join(head).encode()


def _to_kafka(_: bytes) -> bytes:
    """Kafka's protocol has no error that would fit any request."""
    return b""


PLAIN_ANSWERS: Final[Mapping[str, Callable[[bytes], bytes]]] = MappingProxyType(
    {NATIVE: _to_native, HTTP: _to_http, KAFKA: _to_kafka}
)
"""By setting."""
