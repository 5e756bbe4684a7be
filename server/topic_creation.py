"""Topics that are created because a client produces to them or asks for their metadata."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from ..config.broker import BrokerSettings
from ..protocol.api.pieces import Pieces, finish
from ..protocol.errors import CodedError, UnknownServerError
from ..storage.directory.log_directory import LogDirectory
from ..storage.directory.topics import TopicEntry
from ..storage.stepped_change import Steps
from .metadata_store import MetadataStore, TopicChange
from .security.audit import DONE, Audit
from .window_memory import WindowMemory
from .window_topics import is_reserved

_NAMES_AT_ONCE: Final = 16


class CreationContext(Protocol):
    """The client whose requests are handled now: its principal, its host, and what is remembered
    for its connection."""

    @property
    def principal(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def windows(self) -> WindowMemory: ...


class Creations:
    """Creates missing topics, in order with the other changes of topics, and each once, however
    many requests wait for it."""

    def __init__(
        self,
        directory: LogDirectory,
        settings: BrokerSettings,
        changes: MetadataStore,
        audit: Audit,
    ) -> None:
        self._directory = directory
        self.exists: Callable[[str], bool] = directory.topics().__contains__
        """Whether a topic exists."""
        self._settings = settings
        self._changes = changes
        self._audit = audit
        self.context: CreationContext | None = None
        """The client of the present request. Set before each request is handled."""
        self.allowed: Callable[[], bool] | None = None
        """Says whether topics may be created now; `None` means always."""
        self._under_way: dict[str, tuple[TopicChange, asyncio.Task[None]]] = {}

    def missing(self, topics: Iterable[str]) -> Collection[str]:
        """Return the topics that do not exist and may be created, each once."""
        return finish(self.find_missing(topics))

    def find_missing(self, topics: Iterable[str]) -> Pieces[Collection[str]]:
        """As `missing`, in pieces: it takes a while to find out that a name is not a window's."""
        if not self._settings.auto_create_topics_enable:
            return ()
        if self.allowed is not None and not self.allowed():
            return ()
        there = self._directory.topics()
        missing: dict[str, None] = {}
        for number, topic in enumerate(topics, start=1):
            if topic not in there and not is_reserved(there, topic):
                missing[topic] = None
            if number % _NAMES_AT_ONCE == 0:
                yield
        return missing

    def first_partitions(self) -> range:
        """Return the partition numbers of a newly created topic."""
        return range(self._settings.num_partitions)

    def make(self, topics: Collection[str]) -> "Creating":
        """Begin to create `topics`."""
        new = [topic for topic in topics if topic not in self._under_way]
        if new:
            changes, done = self._changes.make((topic, self._making(topic)) for topic in new)
            for topic, change in zip(new, changes, strict=True):
                self._under_way[topic] = change, done
            context = self.context
            by, peer = ("", "") if context is None else (context.principal, context.host)
            done.add_done_callback(partial(self._made, new, by, peer))
        return Creating({topic: self._under_way[topic] for topic in topics})

    def _making(self, topic: str) -> Steps[TopicEntry]:
        there = self._directory.topics().get(topic)
        if there is not None:
            return there  # An earlier change has created the topic.
        changes = self._changes.topics
        return (yield from changes.create(topic, self._settings.num_partitions, {}))

    def _made(self, topics: Iterable[str], by: str, peer: str, _: object) -> None:
        for topic in topics:
            change, _ = self._under_way.pop(topic)
            outcome = _outcome(change)
            self._audit.changed("topic_changed", topic, by, peer, outcome, change="made on demand")


def _outcome(change: TopicChange) -> str:
    """The outcome of a creation, as the audit log writes it."""
    if not change.done:
        return "not done"
    try:
        change.result()
    except CodedError as error:
        return error.name
    except Exception:
        return UnknownServerError.name
    return DONE


class Creating:
    """The creation of topics for one request."""

    def __init__(self, under_way: Mapping[str, tuple[TopicChange, asyncio.Task[None]]]) -> None:
        self._changes = {topic: change for topic, (change, _) in under_way.items()}
        tasks = dict.fromkeys(task for _, task in under_way.values())
        # A request that is cancelled must not end the wait of others.
        waits = map(asyncio.shield, tasks)
        self.ready: asyncio.Future[list[object]] = asyncio.gather(*waits, return_exceptions=True)
        """Done when each topic is created, or its creation has failed."""

    def failures(self) -> Mapping[str, Exception]:
        """Return the error of each topic whose creation has failed."""
        found = {}
        for topic, change in self._changes.items():
            if change.done:
                try:
                    change.result()
                except Exception as error:
                    found[topic] = error
        return found
