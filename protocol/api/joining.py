"""Parts of bytes put together to frames, with their length in front."""

from ..limits import LENGTH_BYTES
from .native.values import Data, Elsewhere, Part


def joined(parts: list[Part]) -> bytes:
    """The frame that consists of `parts`. Raises TypeError when some are not in memory."""
    return b"".join((_length(parts), *parts))  # type: ignore[arg-type]


def joined_if_in_memory(parts: list[Part]) -> bytes | list[bytes | Elsewhere]:
    """The frame; in parts when some are not in memory, with what is in memory joined."""
    try:
        return joined(parts)
    except TypeError:
        return _joined_between(parts)


def _joined_between(parts: list[Part]) -> list[bytes | Elsewhere]:
    whole: list[bytes | Elsewhere] = []
    held: list[Data] = [_length(parts)]
    for part in parts:
        if isinstance(part, Data):
            held.append(part)
            continue
        if held:
            whole.append(b"".join(held))
        whole.append(part)
        held = []
    if held:
        whole.append(b"".join(held))
    return whole


def _length(parts: list[Part]) -> bytes:
    return sum(map(len, parts)).to_bytes(LENGTH_BYTES, "big")
