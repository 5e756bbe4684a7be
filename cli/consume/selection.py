"""Which messages of a topic `consume` takes: those with a key, a text in the value, and headers."""

from collections.abc import Iterable, Sequence

from ...client.consume.time_bounds import APPEND
from ...client.results import ConsumerRecord
from ...values import value_class
from ..errors import WrongUsage, note
from ..headers import argument_bytes, parse_headers
from ..output import plural


@value_class
class Selection:
    """Conditions that a message has to meet, all of them."""

    key: bytes | None = None
    """The key; None for any."""
    text: bytes | None = None
    """Bytes that the value contains; None for any value."""
    headers: tuple[tuple[str, bytes], ...] = ()
    """Headers that the message has, by name and value."""

    @property
    def is_everything(self) -> bool:
        """Whether every message meets it."""
        return self.key is None and self.text is None and not self.headers

    def holds(self, record: ConsumerRecord) -> bool:
        """Whether the message meets every condition."""
        if self.key is not None and record.key != self.key:
            return False
        if self.text is not None and (record.value is None or self.text not in record.value):
            return False
        return all(header in record.headers for header in self.headers)

    def of(self, records: Iterable[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the messages that meet every condition."""
        if self.is_everything:
            return list(records)
        return [record for record in records if self.holds(record)]


def parse_selection(key: str | None, text: str | None, headers: Sequence[str] | None) -> Selection:
    """Return what `--key`, `--grep` and `--header` select. Raises WrongUsage."""
    if text == "":
        raise WrongUsage("--grep: every value contains the empty text: give at least one character")
    return Selection(
        None if key is None else argument_bytes(key),
        None if text is None else argument_bytes(text),
        parse_headers(headers, "--header"),
    )


def time_of(record: ConsumerRecord, by: str) -> int | None:
    """Return the time of a message that a window compares."""
    return record.append_time_ms if by == APPEND else record.timestamp_ms


def untimed_clause(messages: int) -> str:
    """Return the clause that says how many messages have no time."""
    are = "has no time, and is" if messages == 1 else "have no time, and are"
    return f"{messages:,} {plural(messages, 'message')} {are} in no window"


def note_untimed(messages: int) -> None:
    """Say how many messages have no time, if there are any."""
    if messages:
        note(untimed_clause(messages))
