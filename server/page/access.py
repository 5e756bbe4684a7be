"""What a viewer of the page may see: by the same rights as in the protocols."""

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
from ..handlers.base import Services
from ..security.acls import Resource


class PageRefusal(Exception):
    """A request that is not answered; `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class PageAccess(Protocol):
    """What the viewer may see."""

    def topic(self, name: str) -> bool: ...

    def topics(self, every: Mapping[str, TopicEntry]) -> Mapping[str, TopicEntry]: ...

    def settings(self, topic: str) -> bool: ...

    def messages(self, topic: str) -> bool: ...

    def every_topic(self) -> bool: ...

    def every_group(self) -> bool: ...

    def group(self, name: str) -> bool: ...

    def cluster(self) -> bool: ...


class Everything:
    """Sees all, where rights are not checked."""

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
        "find": Operation.READ,
        "histogram": Operation.DESCRIBE,
        "members": Operation.DESCRIBE,
        "messages": Operation.READ,
        "segments": Operation.DESCRIBE,
        "topics": Operation.DESCRIBE,
        "window": Operation.READ,
    }
)
"""By what is asked: the right to the topic that it names. `find` shows what it finds."""


class Allowed:
    """What the rules allow a principal to see."""

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
        """Raise `PageRefusal` unless that may be asked about a topic, whether it exists or not."""
        operation = ASKED_FOR[asked]
        if self._rights.may(operation, ResourceType.TOPIC, topic):
            return
        title, resource = operation_title(operation), Resource(ResourceType.TOPIC, topic[:300])
        self._authorizer.refused(self._principal, self._host, asked, title, str(resource))
        raise PageRefusal(403, f"{self._principal} may not {title} {resource}")
