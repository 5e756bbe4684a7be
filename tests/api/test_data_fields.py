"""Fields of bytes in the native encoding: sent as they are, within their limit."""

from typing import Any

import msgpack
import pytest

from horolog.protocol.api import schema
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.rights import NO_RIGHTS
from horolog.protocol.api.schema import Api
from horolog.protocol.errors import InvalidRequest


@schema.message
class Held:
    kept: bytes = schema.data(max_bytes=2000)
    perhaps: bytes | None = schema.nullable_data(max_bytes=2000, default=None)
    filling: str = schema.string(default="")


HOLD = Api(
    key=5,
    name="hold",
    min_version=0,
    max_version=0,
    request=Held,
    response=Held,
    doc="",
    rights=NO_RIGHTS,
)

# A large frame is decoded without unpacking it first, a small one is unpacked.
fillings = pytest.mark.parametrize("filling", ["", "x" * 3000], ids=["small", "large"])


def sent(body: Any) -> Any:
    _, raw = native.open_request(native.encode_request(HOLD, 0, 1, None, body)[4:])
    return native.decode_body(Held, 0, raw)


@fillings
@pytest.mark.parametrize("perhaps", [None, b"", b"\x00\xff", bytes(2000)])
def test_bytes_come_back_as_they_were(filling: str, perhaps: bytes | None) -> None:
    body = Held(kept=b"\x00", perhaps=perhaps, filling=filling)
    found = sent(body)
    assert found == body
    assert type(found.kept) is bytes


@fillings
@pytest.mark.parametrize("field", ["kept", "perhaps"])
def test_more_bytes_than_the_limit_are_refused(filling: str, field: str) -> None:
    body = Held(kept=b"", filling=filling)
    setattr(body, field, bytes(2001))
    with pytest.raises(InvalidRequest, match=f"`{field}` must be at most 2000 bytes long"):
        sent(body)


@fillings
@pytest.mark.parametrize("kept", ["text", None])
def test_what_is_no_bytes_is_refused(filling: str, kept: str | None) -> None:
    plain = {"kept": kept, "filling": filling}
    frame = msgpack.packb([HOLD.key, 0, 1, None, plain])
    _, raw = native.open_request(frame)
    with pytest.raises(InvalidRequest, match="`kept` must be bytes, not"):
        native.decode_body(Held, 0, raw)
