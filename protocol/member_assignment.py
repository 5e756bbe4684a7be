"""Assignments of a consumer group: the bytes by which the group's leader gives a member its
partitions.

The layout is Kafka's (ConsumerProtocolAssignment, all versions): version int16, then an array of
topics, each a name and an array of partitions (int32), then bytes of the assignor.
"""

from collections.abc import Iterator
from struct import Struct, unpack_from
from struct import error as StructError  # noqa: N812 - it is an exception
from typing import Final

_HEAD: Final = Struct(">hi")
_NAME_BYTES: Final = Struct(">h")
_COUNT: Final = Struct(">i")


class NoAssignment(ValueError):
    """The bytes are not an assignment."""


def assigned_partitions(assignment: bytes) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each topic of an assignment with its partitions. Empty bytes assign nothing. Raises
    `NoAssignment`."""
    if not assignment:
        return
    try:
        _, topics = _HEAD.unpack_from(assignment)
        at = _HEAD.size
        for _ in range(topics):
            (length,) = _NAME_BYTES.unpack_from(assignment, at)
            at += _NAME_BYTES.size
            name, at = assignment[at : at + length], at + length
            (count,) = _COUNT.unpack_from(assignment, at)
            at += _COUNT.size
            if length < 0 or count < 0 or at + 4 * count > len(assignment):
                raise NoAssignment(f"{length} bytes of a name, {count} partitions")
            yield str(name, "utf-8"), unpack_from(f">{count}i", assignment, at)
            at += 4 * count
    except (StructError, UnicodeDecodeError) as error:
        raise NoAssignment(str(error)) from error
