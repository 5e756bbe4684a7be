"""Identity of the logs that stored offsets belong to. A topic that was deleted and made again has
other messages under the same offsets, and so has a topic of the same name in another cluster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..client.results import ClusterDescription

KEY: Final = "@ids"
"""Key of the ids in stored offsets, beside the topics' names. No topic can have this name."""


@dataclass(frozen=True, slots=True)
class LogId:
    """Cluster id and topic id of a topic's logs; an empty text is an unknown id."""

    cluster_id: str = ""
    topic_id: str = ""

    def changed(self, topic: str, now: "LogId") -> str | None:
        """Explain why `now` is another log of `topic` than this one; None if it is the same, as far
        as the ids are known. Cluster ids are compared only where a topic id is unknown: a copy of a
        data directory has the same topic ids."""
        elsewhere = _differ(self.cluster_id, now.cluster_id)
        by_topic = self.topic_id and now.topic_id
        if not (_differ(self.topic_id, now.topic_id) if by_topic else elsewhere):
            return None
        if elsewhere:
            return (
                f"topic {topic} is another one: the offsets are of cluster {self.cluster_id}, and "
                f"this is cluster {now.cluster_id}"
            )
        return (
            f"topic {topic} was deleted and made again, or a partition of it was lost: its id is "
            f"{now.topic_id}, and the offsets are of {self.topic_id}"
        )


UNKNOWN: Final = LogId()


@dataclass(frozen=True, slots=True)
class TopicLogs:
    """Cluster id and topic ids of several topics of one cluster."""

    cluster_id: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def of(self, topic: str) -> LogId:
        """The ids of one topic."""
        return LogId(self.cluster_id, self.topic_ids.get(topic, ""))

    def changed(self, topics: Iterable[str], now: "TopicLogs") -> dict[str, str]:
        """Return the topics that are other ones in `now`, each with the reason."""
        why = {topic: self.of(topic).changed(topic, now.of(topic)) for topic in sorted(set(topics))}
        return {topic: text for topic, text in why.items() if text is not None}

    def learned(self, topics: Iterable[str], now: "TopicLogs") -> "TopicLogs":
        """Return the ids of `topics`, updated by `now`. A known id that `now` lacks stays, unless
        the topic is another one."""
        wanted = sorted(set(topics))
        kept = self.topic_ids.keys() - self.changed(wanted, now)
        ids = {
            topic: now.topic_ids.get(topic) or (self.topic_ids[topic] if topic in kept else "")
            for topic in wanted
        }
        return TopicLogs(
            now.cluster_id or self.cluster_id, {topic: one for topic, one in ids.items() if one}
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object stored beside offsets; empty if no id is known. Topics are sorted,
        because Spark compares the text."""
        found: dict[str, Any] = {}
        if self.cluster_id:
            found["cluster"] = self.cluster_id
        if self.topic_ids:
            found["topics"] = dict(sorted(self.topic_ids.items()))
        return {KEY: found} if found else {}


NO_LOGS: Final = TopicLogs()
"""No id is known."""


def _differ(one: str, other: str) -> bool:
    """Whether two ids are known and different."""
    return bool(one and other) and one != other


def logs_of(described: ClusterDescription) -> TopicLogs:
    """Return the ids in a description of a cluster."""
    ids = {name: topic.topic_id for name, topic in described.topics.items()}
    return TopicLogs(described.cluster_id or "", {name: one for name, one in ids.items() if one})


def logs_from_json(stored: Mapping[str, Any]) -> TopicLogs:
    """Read the ids that `TopicLogs.to_json` wrote. Raises ValueError for anything else."""
    found = stored.get(KEY, {})
    if not isinstance(found, dict) or found.keys() - {"cluster", "topics"}:
        raise ValueError(f"{KEY} is {found!r}")
    cluster_id, topic_ids = found.get("cluster", ""), found.get("topics", {})
    if not isinstance(cluster_id, str) or not isinstance(topic_ids, dict):
        raise ValueError(f"{KEY} is {found!r}")
    if not all(isinstance(one, str) for one in topic_ids.values()):
        raise ValueError(f"{KEY} is {found!r}")
    return TopicLogs(cluster_id, topic_ids)
