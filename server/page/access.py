"""What a request of the page asks for, why it is refused, and what its viewer may see: by the same
rights as in the protocols."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from ...protocol.api.security.acl_terms import (
    CLUSTER_NAME,
    Operation,
    ResourceType,
    operation_title,
)
from ...storage.directory.topics import TopicEntry
from ...storage.log.log import Log
from ...values import value_class
from ..handlers.base import Services
from ..security.acls import Resource

MAX_TEXT: Final = 300
"""Longest text in a query: topic names and times are shorter."""

OFFSET_MAX: Final = 2**63 - 1
PARTITION_MAX: Final = 2**31 - 1


class PageRefusal(Exception):
    """A request that is refused; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class PageAccess(Protocol):
    """Rights of the viewer."""

    def topic(self, name: str) -> bool: ...

    def topics(self, every: Mapping[str, TopicEntry]) -> Mapping[str, TopicEntry]: ...

    def settings(self, topic: str) -> bool: ...

    def messages(self, topic: str) -> bool: ...

    def every_topic(self) -> bool: ...

    def every_group(self) -> bool: ...

    def group(self, name: str) -> bool: ...

    def cluster(self) -> bool: ...


@value_class
class Viewer:
    """The user of the page."""

    principal: str | None
    """Principal; None without authentication and authorization."""
    has_session: bool
    """Whether the user is identified by a session, which a logout ends."""

    def shown(self) -> dict[str, object] | None:
        """Return the user in the form of the page's JSON."""
        if self.principal is None:
            return None
        return {
            "name": self.principal.removeprefix("User:"),
            "principal": self.principal,
            "has_session": self.has_session,
        }


class Query:
    """Checked query string of a request. Raises `PageRefusal`."""

    def __init__(self, given: Mapping[str, str], access: PageAccess, viewer: Viewer) -> None:
        self._given = given
        self.access = access
        """Rights of the viewer."""
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
        """Return a number from `minimum` to `maximum`. A missing one is `default`, even outside
        this range."""
        text = self._given.get(name)
        if text is None:
            return default
        # int() also accepts underscores, spaces and digits of other scripts.
        is_number = text.isascii() and text.isdigit() and len(text) <= 19
        if not is_number or not minimum <= int(text) <= maximum:
            raise PageRefusal(
                400, f"{name} is {text[:40]!r}; it must be a number from {minimum} to {maximum}"
            )
        return int(text)

    @property
    def no_end(self) -> bool:
        """Whether the window has no `until`. It then includes the largest possible time."""
        return "until" not in self._given

    def window(self) -> tuple[int, int]:
        """Return the times `from` and `until` (exclusive) in milliseconds; by default all times."""
        from_ms = self.integer("from", 0)
        return from_ms, self.integer("until", OFFSET_MAX, minimum=from_ms)


async def asked_log(services: Services, query: Query) -> Log:
    """Return the log that a request names, ready for reads.

    Raises `PageRefusal`, `UnknownTopicOrPartition`, and errors of opening the log.
    """
    topic, partition = query.text("topic"), query.integer("partition", 0, maximum=PARTITION_MAX)
    return await prepared_log(services, topic, partition)


async def prepared_log(services: Services, topic: str, partition: int) -> Log:
    """Return a log, ready for reads. Raises `UnknownTopicOrPartition`, and errors of opening the
    log."""
    log = services.logs.find(topic, partition)
    if not log.prepared:
        await services.logs.prepare([log])
        log = services.logs.find(topic, partition)
    return log


class Everything:
    """All rights, for brokers without authorization."""

    def topic(self, name: str) -> bool:
        return True

    def topics(self, every: Mapping[str, TopicEntry]) -> Mapping[str, TopicEntry]:
        return every

    def settings(self, topic: str) -> bool:
        return True

    def messages(self, topic: str) -> bool:
        return True

    def every_topic(self) -> bool:
        return True

    def every_group(self) -> bool:
        return True

    def group(self, name: str) -> bool:
        return True

    def cluster(self) -> bool:
        return True


ASKED_FOR: Final[Mapping[str, Operation]] = MappingProxyType(
    {
        "consumers": Operation.DESCRIBE,
        "download": Operation.READ,
        "find": Operation.READ,
        "histogram": Operation.DESCRIBE,
        "members": Operation.DESCRIBE,
        "messages": Operation.READ,
        "segments": Operation.DESCRIBE,
        "settings": Operation.DESCRIBE_CONFIGS,
        "topics": Operation.DESCRIBE,
        "window": Operation.READ,
    }
)
"""Needed right on the topic by name of the request. `find` needs Read, because it shows the message
that it finds."""


class Allowed:
    """Rights of a principal by the ACLs."""

    def __init__(self, services: Services, principal: str, host: str) -> None:
        self._authorizer = services.security.authorizer
        self._rights = self._authorizer.rights(principal, host)
        self._principal = principal
        self._host = host

    def topic(self, name: str) -> bool:
        return self._rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name)

    def topics(self, every: Mapping[str, TopicEntry]) -> Mapping[str, TopicEntry]:
        return {name: entry for name, entry in every.items() if self.topic(name)}

    def settings(self, topic: str) -> bool:
        return self._rights.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic)

    def messages(self, topic: str) -> bool:
        return self._rights.may(Operation.READ, ResourceType.TOPIC, topic)

    def every_topic(self) -> bool:
        return self._rights.may_all(Operation.DESCRIBE, ResourceType.TOPIC)

    def every_group(self) -> bool:
        return self._rights.may_all(Operation.DESCRIBE, ResourceType.GROUP)

    def group(self, name: str) -> bool:
        return self._rights.may(Operation.DESCRIBE, ResourceType.GROUP, name)

    def cluster(self) -> bool:
        return self._rights.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)

    def check(self, asked: str, topic: str) -> None:
        """Raise `PageRefusal` unless the principal may send this request about a topic, existing or
        not."""
        operation = ASKED_FOR[asked]
        if self._rights.may(operation, ResourceType.TOPIC, topic):
            return
        title, resource = operation_title(operation), Resource(ResourceType.TOPIC, topic[:300])
        self._authorizer.refused(self._principal, self._host, asked, title, str(resource))
        raise PageRefusal(403, f"{self._principal} may not {title} {resource}")
