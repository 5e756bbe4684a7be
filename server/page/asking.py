"""What a request of the page asks for, and why it is refused."""

from collections.abc import Mapping
from typing import Final

from ...storage.log.log import Log
from ..handlers.base import Services

MAX_TEXT: Final = 300
"""Longest text in a query: topic names and times are shorter."""

OFFSET_MAX: Final = 2**63 - 1


class Refusal(Exception):
    """A request that is not answered; `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Query:
    """The part of an address behind the question mark, checked. Raises `Refusal`."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str, default: str | None = None) -> str:
        value = self._given.get(name, default)
        if value is None:
            raise Refusal(400, f"{name} is missing")
        if len(value) > MAX_TEXT:
            raise Refusal(400, f"{name} has {len(value)} characters; allowed are {MAX_TEXT}")
        return value

    def integer(self, name: str, default: int, *, maximum: int = OFFSET_MAX) -> int:
        """A number from 0 to `maximum`."""
        text = self._given.get(name)
        if text is None:
            return default
        # int() takes underscores, spaces and other scripts' digits as well.
        if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > maximum:
            raise Refusal(400, f"{name} is {text[:40]!r}; it must be a number from 0 to {maximum}")
        return int(text)


async def asked_log(services: Services, query: Query) -> Log:
    """The log that a request names, ready to be read.

    Raises `Refusal`, `UnknownTopicOrPartition`, and what opening it raises.
    """
    topic, partition = query.text("topic"), query.integer("partition", 0, maximum=2**31 - 1)
    log = services.logs.find(topic, partition)
    if not log.prepared:
        await services.logs.prepare([log])
        log = services.logs.find(topic, partition)
    return log
