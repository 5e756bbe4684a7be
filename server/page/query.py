"""What a request of the page asks for, and why it is refused."""

from collections.abc import Mapping
from typing import Final

from ...storage.log.log import Log
from ...values import value_class
from ..handlers.base import Services
from .access import PageAccess, PageRefusal

MAX_TEXT: Final = 300
"""Longest text in a query: topic names and times are shorter."""

OFFSET_MAX: Final = 2**63 - 1
PARTITION_MAX: Final = 2**31 - 1


@value_class
class Viewer:
    """The user that looks at the page."""

    principal: str | None
    """`None` where neither logins nor rights tell users apart."""
    has_session: bool
    """Whether a logout ends what lets this user in."""

    def shown(self) -> dict[str, object] | None:
        """As the page shows it."""
        if self.principal is None:
            return None
        return {
            "name": self.principal.removeprefix("User:"),
            "principal": self.principal,
            "has_session": self.has_session,
        }


class Query:
    """The part of an address behind the question mark, checked. Raises `PageRefusal`."""

    def __init__(self, given: Mapping[str, str], access: PageAccess, viewer: Viewer) -> None:
        self._given = given
        self.access = access
        """What may be shown to the viewer."""
        self.viewer = viewer

    def text(self, name: str, default: str | None = None) -> str:
        value = self._given.get(name, default)
        if value is None:
            raise PageRefusal(400, f"{name} is missing")
        if len(value) > MAX_TEXT:
            raise PageRefusal(400, f"{name} has {len(value)} characters; allowed are {MAX_TEXT}")
        return value

    def integer(
        self, name: str, default: int, *, minimum: int = 0, maximum: int = OFFSET_MAX
    ) -> int:
        """A number from `minimum` to `maximum`; what is not given is `default`, whatever it is."""
        text = self._given.get(name)
        if text is None:
            return default
        # int() takes underscores, spaces and other scripts' digits as well.
        is_number = text.isascii() and text.isdigit() and len(text) <= 19
        if not is_number or not minimum <= int(text) <= maximum:
            raise PageRefusal(
                400, f"{name} is {text[:40]!r}; it must be a number from {minimum} to {maximum}"
            )
        return int(text)

    @property
    def no_end(self) -> bool:
        """Whether the window has no `until`: the last time that there is belongs to it then."""
        return "until" not in self._given

    def window(self) -> tuple[int, int]:
        """The times `from` and `until`, in ms, the second not in it; all times without them."""
        from_ms = self.integer("from", 0)
        return from_ms, self.integer("until", OFFSET_MAX, minimum=from_ms)


async def asked_log(services: Services, query: Query) -> Log:
    """The log that a request names, ready to be read.

    Raises `PageRefusal`, `UnknownTopicOrPartition`, and what opening it raises.
    """
    topic, partition = query.text("topic"), query.integer("partition", 0, maximum=PARTITION_MAX)
    return await prepared_log(services, topic, partition)


async def prepared_log(services: Services, topic: str, partition: int) -> Log:
    """A log, ready to be read. Raises `UnknownTopicOrPartition`, and what opening it raises."""
    log = services.logs.find(topic, partition)
    if not log.prepared:
        await services.logs.prepare([log])
        log = services.logs.find(topic, partition)
    return log
