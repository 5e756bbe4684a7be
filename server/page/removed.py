"""What left a topic, for answers of the page that lack it: without the rules, which may reveal
settings and users."""

from typing import Final

from ...storage.directory.journal import Removal
from ..handlers.base import Services
from ..handlers.removals import removals_of

REMOVALS: Final = 10
"""Largest number of removals in an answer with JSON."""


def removed_since(
    services: Services,
    topic: str,
    from_ms: int,
    complete_from_ms: int | None,
    *,
    by_append: bool = False,
) -> list[Removal]:
    """Return what left a topic and may have had times of `from_ms` or later, oldest changes first.

    Empty if the topic is complete from `from_ms` on, or if it is not known from when on it is.
    """
    entry = services.directory.topics().get(topic)
    if entry is None or complete_from_ms is None or complete_from_ms <= from_ms:
        return []
    return [
        each
        for each in removals_of(services, topic)
        if each.topic_id == entry.topic_id and _reaches(each, from_ms, by_append=by_append)
    ]


def _reaches(removal: Removal, from_ms: int, *, by_append: bool) -> bool:
    """Whether removed messages may have had a time of `from_ms` or later. Unknown times are no
    limit. What was appended at a time left the log after it."""
    if removal.messages == 0:
        return False
    largest_ms = removal.at_ms if by_append else removal.largest_timestamp_ms
    return not 0 <= largest_ms < from_ms


def show_removal(removal: Removal) -> dict[str, object]:
    """Return a removal as JSON, with the names of `horolog consume --stats`."""
    known = removal.end_offset >= 0
    first_ms, largest_ms = removal.first_timestamp_ms, removal.largest_timestamp_ms
    return {
        "partition": removal.partition,
        "cause": removal.cause,
        "first_offset": removal.first_offset if known else None,
        "end_offset": removal.end_offset if known else None,
        "messages": removal.messages if removal.messages >= 0 else None,
        "first_timestamp_ms": first_ms if first_ms >= 0 else None,
        "largest_timestamp_ms": largest_ms if largest_ms >= 0 else None,
        "began_ms": removal.began_ms,
        "at_ms": removal.at_ms,
        "times": removal.times,
    }
