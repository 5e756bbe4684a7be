"""Records of the metadata log for the journal.

    kind                 what follows              meaning
    "removed"            [removal, ...]            messages left logs
    "deleted, removed"   name, id, [removal, ...]  a topic and its positions are gone, and messages

A removal is `[cause, rule, topic, topic id, partition, first offset, end offset, number of
messages, time of the first message, largest time, time of the first removal, time of the last,
number of removals]`; times in ms, -1 where a number is not known. These records have version 6.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ..directory.journal import MAX_TOPIC_REMOVALS, Cause, Removal
from ..names import is_id, is_topic_name
from .access_records import MalformedRecord

REMOVAL_VERSION: Final = 6

REMOVED: Final = "removed"
DELETED_REMOVED: Final = "deleted, removed"

MAX_RULE_CHARACTERS: Final = 512

_CAUSES: Final = frozenset(Cause)
_INT64_MAX: Final = 2**63 - 1


class MessagesRemoved(NamedTuple):
    """Messages left logs; at most `MAX_TOPIC_REMOVALS` removals."""

    removals: Sequence[Removal]


def removal_fields(removals: Sequence[Removal]) -> list[Any]:
    """Return removals as they are stored in a record."""
    return [[str(removal.cause), *removal[1:]] for removal in removals]


def decode_removals(found: Any) -> tuple[Removal, ...]:
    """Return the removals of a record. Raises `MalformedRecord`."""
    if not isinstance(found, list) or len(found) > MAX_TOPIC_REMOVALS:
        raise MalformedRecord(f"removals are not a list of up to {MAX_TOPIC_REMOVALS}")
    return tuple(map(_removal, found))


def _removal(fields: Any) -> Removal:
    if not isinstance(fields, list) or len(fields) != len(Removal._fields):
        raise MalformedRecord(f"a removal is not a list of {len(Removal._fields)}")
    cause, rule, topic, topic_id, *numbers = fields
    if not isinstance(cause, str) or cause not in _CAUSES:
        raise MalformedRecord(f"the cause of a removal is {str(cause)[:40]!r}")
    if not isinstance(rule, str) or len(rule) > MAX_RULE_CHARACTERS:
        raise MalformedRecord(f"the rule of a removal is no text of {MAX_RULE_CHARACTERS}")
    if not isinstance(topic, str) or not is_topic_name(topic):
        raise MalformedRecord(f"{str(topic)[:80]!r} is not a topic name")
    if not isinstance(topic_id, str) or not is_id(topic_id):
        raise MalformedRecord(f"{str(topic_id)[:40]!r} is not a topic id")
    if any(type(each) is not int or not -1 <= each <= _INT64_MAX for each in numbers):
        raise MalformedRecord("a number of a removal is none from -1 to 2**63-1")
    return Removal(cause, rule, topic, topic_id, *numbers)


def removed(removals: Any) -> MessagesRemoved:
    """Decode a record "removed"."""
    return MessagesRemoved(decode_removals(removals))
