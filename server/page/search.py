"""Search for a text in keys, values and headers of messages."""

from typing import Final

from ...protocol.records.kernel.terms import Headers
from ...protocol.records.messages.sets import Record
from .access import PageRefusal, Query

PLACES: Final = ("anywhere", "key", "value", "header")


class ContentSearch:
    """Finds messages that contain a text as UTF-8; ASCII letters match in either case."""

    def __init__(self, text: str, place: str) -> None:
        self._text = text.encode().lower()
        self._place = place
        self.looked = 0
        """Messages compared so far."""

    def matches(self, record: Record) -> bool:
        """Whether a message contains the text; counts the message."""
        self.looked += 1
        place = self._place
        return (
            (place in ("anywhere", "key") and self._is_in(record.key))
            or (place in ("anywhere", "value") and self._is_in(record.value))
            or (place in ("anywhere", "header") and self._is_in_headers(record.headers))
        )

    def _is_in(self, content: bytes | None) -> bool:
        return content is not None and self._text in content.lower()

    def _is_in_headers(self, headers: Headers) -> bool:
        """Whether one of the headers contains the text, written as `name=value`."""
        return any(self._is_in(f"{name}=".encode() + (value or b"")) for name, value in headers)


def content_search(query: Query) -> ContentSearch | None:
    """Return the search that a request asks for; None for one without a text. Raises
    `PageRefusal`."""
    text, place = query.text("text", ""), query.text("in", PLACES[0])
    if place not in PLACES:
        raise PageRefusal(400, f"in is {place[:40]!r}; it must be one of {', '.join(PLACES)}")
    return ContentSearch(text, place) if text else None
