"""Which topics there are, from leader to follower.

The one place that stands in for a replicated metadata log: a leader tells its topics and their
settings beside the messages, and its followers have the same ones. Nobody waits until they have.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ...protocol.api.cluster.replicate import (
    ReplicatedSetting,
    ReplicatedTopic,
    ReplicateResponse,
)
from ...protocol.errors import InvalidTopic
from ...storage.directory.log_directory import LogDirectory
from ...storage.directory.random_ids import is_id
from ...storage.directory.stepped_change import Steps
from ...storage.directory.topics import TopicEntry
from ...storage.events import Observer
from ...storage.names import check_topic_name
from ..metadata_store import MetadataStore

AT_ONCE: Final = 500
"""Topics that are made before the others are looked at."""


class Told:
    """Which topics a follower was told of."""

    def __init__(self) -> None:
        self._entries: dict[str, TopicEntry] = {}
        self._changes = -1

    def is_current(self, directory: LogDirectory) -> bool:
        """Whether there is nothing to tell."""
        return self._changes == directory.topic_changes

    def tell(self, response: ReplicateResponse, directory: LogDirectory) -> None:
        """Put what changed since the last time into a response."""
        if self.is_current(directory):
            return
        topics = directory.topics()
        response.topics_are_all = self._changes < 0
        changed = [one for one in topics.values() if self._entries.get(one.name) is not one]
        response.topics = [_written(one) for one in changed]
        response.topics_gone = [name for name in self._entries if name not in topics]
        self._entries = dict(topics)
        self._changes = directory.topic_changes


def _written(entry: TopicEntry) -> ReplicatedTopic:
    return ReplicatedTopic(
        name=entry.name,
        topic_id=entry.topic_id,
        partitions=entry.partitions,
        gaps=entry.gaps,
        settings=[
            ReplicatedSetting(name=name, value=value) for name, value in entry.overrides.items()
        ],
    )


class TopicCopies:
    """Has the topics of a directory be those of the leader's."""

    def __init__(self, directory: LogDirectory, changes: MetadataStore, observe: Observer) -> None:
        self._directory = directory
        self._changes = changes
        self._observe = observe

    async def follow(self, response: ReplicateResponse) -> None:
        """Make, alter and delete topics as a leader says. Raises `CodedError`, `OSError`."""
        if not (response.topics or response.topics_gone or response.topics_are_all):
            return
        for topic in response.topics:
            check_topic_name(topic.name)
            if not is_id(topic.topic_id) or topic.partitions < 1:
                raise InvalidTopic(
                    f"the leader says that topic {topic.name} has id {topic.topic_id[:40]!r} and "
                    f"{topic.partitions} partitions"
                )
        topics = self._directory.topics()
        wanted = {topic.name: topic for topic in response.topics}
        gone = [name for name in response.topics_gone if name in topics]
        if response.topics_are_all:
            gone = [name for name in topics if name not in wanted]
        others = [
            one.name
            for one in response.topics
            if one.name in topics and topics[one.name].topic_id != one.topic_id
        ]
        await self._carry_out((name, self._deleting(name)) for name in (*gone, *others))
        for first in range(0, len(response.topics), AT_ONCE):
            some = response.topics[first : first + AT_ONCE]
            await self._carry_out((one.name, self._having(one)) for one in some)

    async def _carry_out(self, asked: Iterable[tuple[str, Steps[TopicEntry]]]) -> None:
        changes, done = self._changes.make(asked)
        await done
        for change in changes:
            change.result()

    def _deleting(self, name: str) -> Steps[TopicEntry]:
        self._observe("topic_not_of_leader", topic=name)
        return (yield from self._directory.changes.delete(name, lambda: None))

    def _having(self, topic: ReplicatedTopic) -> Steps[TopicEntry]:
        changes = self._directory.changes
        overrides = _settings(topic)
        entry = self._directory.topics().get(topic.name)
        if entry is None:
            return (
                yield from changes.create(
                    topic.name,
                    topic.partitions,
                    overrides,
                    topic_id=topic.topic_id,
                    gaps=topic.gaps,
                )
            )
        if entry.partitions < topic.partitions:
            entry = yield from changes.raise_partitions(topic.name, topic.partitions)
        if dict(entry.overrides) != dict(overrides):
            entry = yield from changes.alter(topic.name, overrides)
        return entry


def _settings(topic: ReplicatedTopic) -> Mapping[str, str]:
    return {one.name: one.value for one in topic.settings}
