"""Encoding of columns as message sets."""

from collections.abc import Mapping, Sequence

from ...protocol.records.batch import finish_batch
from ...protocol.records.kernel import RecordEncoder
from ...protocol.records.layout import Codec
from ...protocol.records.messages.sets import build_columns, build_wrapper

Headers = Sequence[tuple[str, bytes | None]]
"""Pairs of name and value; a name may occur several times."""


def encode(
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    times_ms: Sequence[int],
    codec: Codec,
    *,
    headers: Mapping[int, Headers] | None = None,
    batches: bool = False,
) -> bytearray:
    """Return the message set of these messages, at least one, for a produce request. A time of -1
    means that the message has no time.

    `headers` are keyed by row. A set with headers or with zstd is a record batch (format v2), and
    so is every set with `batches`; other sets are in format v1.
    """
    if batches or headers or codec is Codec.ZSTD:
        return _batch(keys, values, times_ms, codec, headers or {})
    plain = build_columns(values, times_ms, keys)
    if codec is Codec.NONE:
        return plain
    last, latest_ms = len(values) - 1, max(times_ms)
    return build_wrapper(plain, offset=last, timestamp_ms=latest_ms, magic=1, codec=codec)


def _batch(
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    times_ms: Sequence[int],
    codec: Codec,
    headers: Mapping[int, Headers],
) -> bytearray:
    encoder = RecordEncoder()
    if not headers:
        encoder.add_columns(values, keys, times_ms)
    else:
        rows = zip(values, keys or [None] * len(values), times_ms, strict=True)
        for row, (value, key, time_ms) in enumerate(rows):
            encoder.add(value, key, time_ms, headers.get(row, ()))
    return finish_batch(encoder, codec=codec)


def checked_headers(headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers of a message. Raises TypeError for anything but pairs, ValueError for a
    name that UTF-8 cannot encode (half of a surrogate pair)."""
    try:
        found = tuple((name, content) for name, content in headers)
    except (TypeError, ValueError):
        raise TypeError(
            f"headers are pairs of a name and bytes or None, not {headers!r:.100}"
        ) from None
    for name, content in found:
        if type(name) is not str or not (content is None or type(content) is bytes):
            raise TypeError(
                "a header is a pair of str and bytes or None, not one of "
                f"{type(name).__name__} and {type(content).__name__}"
            )
        if not name.isascii():
            name.encode()  # fails here for this message only, not later for all messages of its set
    return found


def headers_bytes(headers: Headers) -> int:
    """Return the approximate size of the headers in bytes, hardly less than the real size."""
    return sum(
        4 + len(name if name.isascii() else name.encode()) + len(content or b"")
        for name, content in headers
    )


def wrong_type(name: str, content: object) -> TypeError:
    """Return the error for an argument `name` with this value of a wrong type."""
    return TypeError(f"a {name} is bytes or None, not {type(content).__name__}")
