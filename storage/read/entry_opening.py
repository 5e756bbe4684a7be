"""Opening stored entries in the middle of a search, without holding up the others for long."""

from collections.abc import Callable, Generator
from typing import Final, TypeVar

from ...protocol.errors import MessageTooLarge
from ...protocol.records.layout import (
    ATTRIBUTES_AT,
    BATCH_ATTRIBUTES_AT,
    BATCH_MAGIC,
    CODEC_MASK,
    MAGIC_AT,
)
from ..log.admission import OPENED_BYTES
from ..stepped_change import Work

T = TypeVar("T")

Steps = Generator[Work | None, None, T]
"""Pauses (`None`), and work that may be done in another thread before the next step."""

_COMPRESSED_BYTES: Final = 128 * 1024
"""What is compressed to more is not opened in the middle."""


def opened(entry: bytes, max_bytes: int, call: Callable[[int], T]) -> Steps[T]:
    """What `call` makes of a whole entry, given how many bytes it may be decompressed to.

    At once where that is little work, or else as work for any thread. Raises what it raises.
    """
    if not _is_compressed(entry):
        return call(max_bytes)
    if len(entry) <= _COMPRESSED_BYTES:
        try:
            return call(min(max_bytes, OPENED_BYTES))
        except MessageTooLarge:
            if max_bytes <= OPENED_BYTES:
                raise
    result: list[T] = []
    failure: list[Exception] = []

    def work() -> None:
        try:
            result.append(call(max_bytes))
        except Exception as error:
            failure.append(error)

    yield work
    if failure:
        raise failure[0]
    return result[0]


def _is_compressed(entry: bytes) -> bool:
    at = BATCH_ATTRIBUTES_AT + 1 if entry[MAGIC_AT] == BATCH_MAGIC else ATTRIBUTES_AT
    return bool(entry[at] & CODEC_MASK)
