"""Whether a topic will take data that is loaded into it, and keep it: asked before the loading."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ...blocking import Admin
from ...client.cluster.servers import Servers
from ...client.results import TopicSetting
from ...clock import Clock, SystemClock
from ...protocol.errors import UnknownTopicOrPartition
from ...times import INT64_MAX, format_time

_DIFFERENCE_NAMES: Final = (
    "max.message.time.difference.ms",
    "message.timestamp.difference.max.ms",
)
"""One setting: its name here, and Kafka's."""

_DELETE: Final = "delete"
_COMPACT: Final = "compact"
"""In `cleanup.policy`."""

_MANY_SEGMENTS: Final = 1000
"""More segments than this in a partition are worth a word: each has three or four files."""

_MESSAGE_OVERHEAD: Final = 100
"""Bytes around key and value, generously: a message is stored with its length, time and offset."""


@dataclass(frozen=True, slots=True)
class DataFacts:
    """What was found out about the rows that are to be loaded."""

    rows: int
    first_ms: int | None
    """Smallest time; None when no row has one."""
    last_ms: int | None
    without_time: int
    largest_bytes: int
    """Key and value of the largest row together."""
    total_bytes: int
    """All keys and values."""
    without_value: int = 0
    without_key: int = 0


class FindingLevel(StrEnum):
    """How much a finding matters."""

    REFUSED = "refused"
    """Rows would be refused or lost: loading does not start."""
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class PreflightFinding:
    """Something about the topic that does not go with the data."""

    level: FindingLevel
    text: str
    fix: str
    """A command, or what to change; empty when there is nothing to do."""


def preflight(
    server: str | Servers, topic: str, facts: DataFacts, *, clock: Clock | None = None
) -> list[PreflightFinding]:
    """What keeps `topic` from taking these rows with their times, and from keeping them.

    Loading is safe when no finding is `REFUSED`. Raises ConnectionFailed.
    """
    now_ms = (clock or SystemClock()).now_ms()
    with Admin(server) as admin:
        try:
            settings = admin.describe_topic(topic).settings
        except UnknownTopicOrPartition:
            return [_missing_topic(topic, facts, now_ms)]
    return list(judge(topic, {one.name: one for one in settings}, facts, now_ms))


def judge(
    topic: str, settings: Mapping[str, TopicSetting], facts: DataFacts, now_ms: int
) -> Iterator[PreflightFinding]:
    """The findings, from the topic's settings in force."""
    topic_settings = _Settings(topic, settings)
    if facts.without_value:
        yield PreflightFinding(
            FindingLevel.REFUSED,
            f"{facts.without_value} rows have null for a value",
            "name another expression as the value, as coalesce(VALUE, ''), or leave such rows out "
            "of the input",
        )
    yield from _about_times(topic_settings, facts, now_ms)
    policies = topic_settings.text("cleanup.policy", _DELETE).split(",")
    if _COMPACT in policies and facts.without_key:
        yield PreflightFinding(
            FindingLevel.REFUSED,
            f"{facts.without_key} rows have null for a key, and the topic is compacted "
            f"(cleanup.policy={','.join(policies)}): their sets would be refused",
            "name another expression as the key, or load into a topic with cleanup.policy=delete",
        )
    if _DELETE in policies:
        yield from _about_retention(topic_settings, facts, now_ms)
    yield from _about_sizes(topic_settings, facts)


class _Settings:
    """A topic's settings as numbers, and the command that changes one."""

    def __init__(self, topic: str, settings: Mapping[str, TopicSetting]) -> None:
        self._topic = topic
        self._settings = settings

    def text(self, name: str, default: str) -> str:
        found = self._settings.get(name)
        return default if found is None or found.value is None else found.value

    def number(self, name: str, default: int) -> int:
        return int(self.text(name, str(default)))

    def is_set(self, name: str) -> bool:
        found = self._settings.get(name)
        return found is not None and found.source != "default"

    def alter(self, name: str, value: object) -> str:
        return f"horolog topic alter {self._topic} --set {name}={value}"


def _missing_topic(topic: str, facts: DataFacts, now_ms: int) -> PreflightFinding:
    keep = ""
    if facts.first_ms is not None and facts.first_ms < now_ms:
        keep = " --set retention.ms=-1"
    return PreflightFinding(
        FindingLevel.REFUSED,
        f"there is no topic {topic}",
        f"horolog topic create {topic} --partitions 1{keep}",
    )


def _about_times(settings: _Settings, facts: DataFacts, now_ms: int) -> Iterator[PreflightFinding]:
    kind = settings.text("message.timestamp.type", "CreateTime")
    if kind != "CreateTime":
        yield PreflightFinding(
            FindingLevel.REFUSED,
            f"the topic replaces the rows' times by its own (message.timestamp.type={kind})",
            settings.alter("message.timestamp.type", "CreateTime"),
        )
    version = settings.text("message.format.version", "producer")
    if version.startswith(("0.8", "0.9")):
        yield PreflightFinding(
            FindingLevel.REFUSED,
            f"the topic stores no times (message.format.version={version})",
            settings.alter("message.format.version", "producer"),
        )
    if facts.without_time:
        yield PreflightFinding(
            FindingLevel.WARNING,
            f"{facts.without_time} rows have no time: they get that of the loading",
            "",
        )
    if facts.first_ms is None or facts.last_ms is None:
        return
    if facts.first_ms < 0:
        yield PreflightFinding(
            FindingLevel.REFUSED,
            f"the oldest row is {-facts.first_ms} ms before 1970, which no message can be",
            "",
        )
    for direction, apart_ms, when in (
        ("before", now_ms - facts.first_ms, f"oldest row is of {format_time(facts.first_ms)}"),
        ("after", facts.last_ms - now_ms, f"newest row is of {format_time(facts.last_ms)}"),
    ):
        name, allowed_ms = _allowed(settings, direction)
        if apart_ms > allowed_ms:
            yield PreflightFinding(
                FindingLevel.REFUSED,
                f"the {when}, {apart_ms} ms from now, and {name} allows {allowed_ms} ms: its set "
                "would be refused",
                settings.alter(name, INT64_MAX),
            )


def _allowed(settings: _Settings, direction: str) -> tuple[str, int]:
    """The setting that bounds times in this direction, and its value."""
    own = f"message.timestamp.{direction}.max.ms"
    if settings.is_set(own):
        return own, settings.number(own, INT64_MAX)
    for name in _DIFFERENCE_NAMES:
        if settings.is_set(name):
            return name, settings.number(name, INT64_MAX)
    return own, settings.number(own, INT64_MAX)


def _about_retention(
    settings: _Settings, facts: DataFacts, now_ms: int
) -> Iterator[PreflightFinding]:
    retention_ms = settings.number("retention.ms", -1)
    if retention_ms >= 0 and facts.first_ms is not None and facts.last_ms is not None:
        oldest_ms = now_ms - retention_ms
        if facts.first_ms < oldest_ms:
            which = "all rows are" if facts.last_ms < oldest_ms else "the oldest rows are"
            yield PreflightFinding(
                FindingLevel.REFUSED,
                f"{which} older than retention.ms={retention_ms} (the oldest is of "
                f"{format_time(facts.first_ms)}): retention goes by message time, so they would "
                "be deleted again",
                settings.alter("retention.ms", -1),
            )
    retention_bytes = settings.number("retention.bytes", -1)
    if 0 <= retention_bytes < facts.total_bytes:
        yield PreflightFinding(
            FindingLevel.WARNING,
            f"the rows are {facts.total_bytes} bytes, and retention.bytes={retention_bytes} keeps "
            "so much of a partition: with few partitions the oldest would be deleted again",
            settings.alter("retention.bytes", -1),
        )


def _about_sizes(settings: _Settings, facts: DataFacts) -> Iterator[PreflightFinding]:
    largest = settings.number("max.message.bytes", INT64_MAX)
    if facts.largest_bytes + _MESSAGE_OVERHEAD > largest:
        yield PreflightFinding(
            FindingLevel.REFUSED,
            f"the largest row has {facts.largest_bytes} bytes of key and value, and "
            f"max.message.bytes={largest}",
            settings.alter("max.message.bytes", facts.largest_bytes + _MESSAGE_OVERHEAD),
        )
    segment_ms = settings.number("segment.ms", INT64_MAX)
    if facts.first_ms is not None and facts.last_ms is not None and segment_ms > 0:
        segments = (facts.last_ms - facts.first_ms) // segment_ms
        if segments > _MANY_SEGMENTS:
            yield PreflightFinding(
                FindingLevel.WARNING,
                f"the times span {segments} times segment.ms={segment_ms}, so each partition "
                "would get about as many segments",
                settings.alter("segment.ms", (facts.last_ms - facts.first_ms) // _MANY_SEGMENTS),
            )
