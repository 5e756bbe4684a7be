"""Which names and positions are allowed."""

from ...protocol.errors import InvalidGroupId, InvalidRequest
from ..names import MAX_TOPIC_NAME
from .position_records import MAX_NAME_BYTES, StoredPosition


def check_name(name: str) -> None:
    """Raise `InvalidGroupId` for a name that is empty or too long."""
    size = len(name.encode())
    if not 1 <= size <= MAX_NAME_BYTES:
        raise InvalidGroupId(
            f"the position name {name[:40]!r} has {size} bytes; allowed are 1 to {MAX_NAME_BYTES}"
        )


def check_entry(entry: StoredPosition) -> None:
    """Raise `InvalidRequest` for an invalid position."""
    if not 1 <= len(entry.topic) <= MAX_TOPIC_NAME:
        raise InvalidRequest(
            f"the topic name {entry.topic[:40]!r} has {len(entry.topic)} characters; "
            f"allowed are 1 to {MAX_TOPIC_NAME}"
        )
    if not 0 <= entry.partition < 2**31:
        raise InvalidRequest(f"partition {entry.partition} is not within 0 to {2**31 - 1}")
    if not 0 <= entry.offset < 2**63:
        raise InvalidRequest(
            f"offset {entry.offset} of {entry.topic}-{entry.partition} is not within 0 to "
            f"{2**63 - 1}"
        )
