"""The same message in another format."""

from .layout import LOG_APPEND_TIME_BIT, NO_TIMESTAMP, RESERVED_MASK, Codec
from .message import Entry, build_message


def upconvert(entry: Entry, timestamp_ms: int = NO_TIMESTAMP, append_time: bool = False) -> bytes:
    """A plain v0 message as v1 message bytes (8 more, without the entry's offset and size).

    `append_time` says that a broker gave the timestamp. `ValueError` for any other entry: what a
    wrapper holds has to be converted message by message and compressed anew.
    """
    if entry.magic != 0 or entry.codec is not Codec.NONE:
        raise ValueError(
            f"magic {entry.magic}, codec {entry.codec.label}: only plain messages of magic 0"
        )
    attributes = entry.attributes & RESERVED_MASK | (LOG_APPEND_TIME_BIT if append_time else 0)
    return build_message(
        entry.key, entry.value, timestamp_ms=timestamp_ms, magic=1, attributes=attributes
    )
