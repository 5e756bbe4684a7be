"""Message sets from columns."""

from collections.abc import Sequence

from ..protocol.records.layout import Codec
from ..protocol.records.sets import build_columns, build_wrapper


def encode(
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    times_ms: Sequence[int],
    codec: Codec,
) -> bytes:
    """The set of these messages, at least one, to be produced; -1 is no time."""
    plain = build_columns(values, times_ms, keys)
    if codec is Codec.NONE:
        return bytes(plain)
    last, latest_ms = len(values) - 1, max(times_ms)
    return bytes(build_wrapper(plain, offset=last, timestamp_ms=latest_ms, magic=1, codec=codec))
