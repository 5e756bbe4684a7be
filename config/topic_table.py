"""Every setting of a topic, declared once, with the versions that `message.format.version` may name
and the message format of each.

Kafka names formats by the release that brought them, with a suffix for steps between releases.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from .setting import INT32_MAX, INT64_MAX, Kind, Scope, Setting

AS_SENT: Final = "producer"
"""Not a version: messages are stored in the format in which they were sent."""

MAGIC_OF_VERSION: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(("0.8.0", "0.8.1", "0.8.2", "0.9.0"), 0),
        **dict.fromkeys(("0.10.0", "0.10.1", "0.10.2"), 1),
        **dict.fromkeys(("0.11.0", "1.0", "1.1"), 2),
        **dict.fromkeys(("2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8"), 2),
        **dict.fromkeys(("3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9"), 2),
    }
)
"""The format (magic byte) that each version stores."""

_STEPS: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(("0.10.2", "1.0", "1.1", "2.5", "2.6"), 1),
        **dict.fromkeys(("0.10.0", "2.0", "2.2", "2.3", "2.4", "2.8", "3.0"), 2),
        **dict.fromkeys(("0.10.1", "0.11.0", "2.1", "2.7"), 3),
    }
)
"""Number of named steps that led to a release: `2.1-IV0` to `2.1-IV2`."""

_RELEASE: Final = re.compile(r"(0\.\d+\.\d+|[1-9]\d*\.\d+)(\.\d+)+", re.ASCII)
_STEP: Final = re.compile(r"(?P<release>.+)-IV(?P<number>\d)", re.ASCII)

_DAY_MS: Final = 86_400_000
_NOT_CLEANED_YET: Final = "Accepted, not cleaned yet: every message stays."
_TIME_DIFFERENCE: Final = "message.timestamp.difference.max.ms"


def _integer(name: str, default: int, unit: str, doc: str, **more: Any) -> Setting:
    return Setting(
        name=name, scope=Scope.TOPIC, kind=Kind.INTEGER, default=default, unit=unit, doc=doc, **more
    )


def _choice(name: str, choices: tuple[str, ...], doc: str, **more: Any) -> Setting:
    """Return a topic setting with these choices. The first one is the default."""
    return Setting(
        name=name,
        scope=Scope.TOPIC,
        kind=Kind.CHOICE,
        default=choices[0],
        choices=choices,
        doc=doc,
        **more,
    )


def version_that_counts(text: str) -> str:
    """Return the part of a version that determines the format: the first two numbers of a release,
    or three if the first is 0.

    `0.9.0.1` becomes `0.9.0`; `2.1.1` and `2.1-IV2` become `2.1`. Any other text is returned
    unchanged.
    """
    release = _RELEASE.fullmatch(text)
    if release is not None:
        return release[1]
    step = _STEP.fullmatch(text)
    if step is not None and int(step["number"]) < _STEPS.get(step["release"], 0):
        return step["release"]
    return text


@lru_cache(maxsize=64)
def magic_of(version: str) -> int | None:
    """Return the format that a checked `message.format.version` stores; `None` for `producer`."""
    return MAGIC_OF_VERSION.get(version_that_counts(version))


_DECLARED: Final = (
    _choice(
        "message.timestamp.type",
        ("CreateTime", "LogAppendTime"),
        "Which timestamp a message has: that of its producer (CreateTime), or the broker's time "
        "of the append (LogAppendTime).",
        aliases=("log.message.timestamp.type",),
    ),
    _integer(
        "max.message.time.difference.ms",
        INT64_MAX,
        "ms",
        "On a CreateTime topic, how far a message's timestamp may differ from the broker's clock "
        "in either direction. One message beyond the limit refuses its whole set. The default is "
        "no limit.",
        no_limit=INT64_MAX,
        aliases=(_TIME_DIFFERENCE, f"log.{_TIME_DIFFERENCE}"),
    ),
    _integer(
        "message.timestamp.before.max.ms",
        INT64_MAX,
        "ms",
        "How far a message's timestamp may be in the past. If set, it takes precedence over "
        "max.message.time.difference.ms for that direction.",
        no_limit=INT64_MAX,
        aliases=("log.message.timestamp.before.max.ms",),
    ),
    _integer(
        "message.timestamp.after.max.ms",
        INT64_MAX,
        "ms",
        "How far a message's timestamp may be in the future. If set, it takes precedence over "
        "max.message.time.difference.ms for that direction.",
        no_limit=INT64_MAX,
        aliases=("log.message.timestamp.after.max.ms",),
    ),
    _choice(
        "message.format.version",
        (AS_SENT, *MAGIC_OF_VERSION),
        "The message format on disk. `producer` stores messages as sent, with two exceptions: a "
        "LogAppendTime topic stores format v0 as v1, because v0 has no place for the time, and a "
        "topic with lz4 does so too, because most readers refuse the lz4 frames of v0. A version "
        "up to 0.9 stores v0, for readers that know nothing else: timestamps are dropped, and a "
        "search by time is refused. 0.10 stores v1; 0.11 and later store v2, record batches. "
        "Other sets are converted when they are appended; stored data is not changed. The first "
        "two numbers of a release matter, or three if the first is 0: 2.1.1 is 2.1, and 0.9.0.1 "
        "is 0.9.0.",
        part_that_counts=version_that_counts,
        aliases=("log.message.format.version",),
    ),
    _choice(
        "compression.type",
        ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "How message sets are stored: as the producer sent them, uncompressed, or with one codec. "
        "With zstd, sets are stored as record batches (v2); if message.format.version names an "
        "older format, they are compressed with gzip instead.",
        any_case_in_broker=True,
    ),
    _integer(
        "segment.bytes",
        2**30,
        "bytes",
        "Size at which a segment is closed and the next one is begun. A message set larger than "
        "this is refused.",
        minimum=14,
        maximum=INT32_MAX,
        aliases=("log.segment.bytes",),
    ),
    _integer(
        "segment.ms",
        7 * _DAY_MS,
        "ms",
        "Message time that a segment may span, counted from its first message, before the next "
        "one is begun. A segment with messages is also closed by a pass of retention if nothing "
        "was appended to it for this time, by the broker's clock.",
        minimum=1,
        aliases=("log.roll.ms",),
        scaled=MappingProxyType({"log.roll.hours": 3_600_000}),
    ),
    _integer(
        "segment.jitter.ms",
        0,
        "ms",
        "Maximum random time subtracted from segment.ms for each segment, so that many partitions "
        "do not roll at once.",
        aliases=("log.roll.jitter.ms",),
        scaled=MappingProxyType({"log.roll.jitter.hours": 3_600_000}),
    ),
    _integer(
        "segment.index.bytes",
        10 * 2**20,
        "bytes",
        "Maximum size of each index of a segment; a full index closes the segment. Below 24 the "
        "time index has no usable entry.",
        minimum=24,
        maximum=INT32_MAX,
        aliases=("log.index.size.max.bytes",),
    ),
    _integer(
        "index.interval.bytes",
        4096,
        "bytes",
        "Bytes of messages between two index entries. A smaller value makes searches faster and "
        "indexes larger.",
        maximum=INT32_MAX,
        aliases=("log.index.interval.bytes",),
    ),
    _integer(
        "retention.ms",
        7 * _DAY_MS,
        "ms",
        "Age, by message timestamp, at which a segment is deleted: its largest timestamp is older "
        "than this. Negative keeps everything; 0 is allowed for a topic, not for the broker.",
        negative_is_off=True,
        zero_in_broker=False,
        aliases=("log.retention.ms",),
        scaled=MappingProxyType(
            {"log.retention.minutes": 60_000, "log.retention.hours": 3_600_000}
        ),
    ),
    _integer(
        "retention.bytes",
        -1,
        "bytes",
        "Size of a partition above which its oldest segments are deleted, as long as the "
        "remaining segments still have this size. Negative is no limit.",
        negative_is_off=True,
        aliases=("log.retention.bytes",),
    ),
    Setting(
        name="cleanup.policy",
        scope=Scope.TOPIC,
        kind=Kind.CHOICES,
        default="delete",
        choices=("delete", "compact"),
        minimum=1,
        doc="What happens to old data. `delete`: segments are deleted by retention.ms and "
        "retention.bytes. `compact`: the topic is meant to keep the latest message of each "
        "key; messages without a key are refused, and neither limit deletes anything. "
        "`compact,delete`: both. "
        f"{_NOT_CLEANED_YET}",
        aliases=("log.cleanup.policy",),
    ),
    Setting(
        name="min.cleanable.dirty.ratio",
        scope=Scope.TOPIC,
        kind=Kind.RATIO,
        default=0.5,
        doc="The part of a compacted log that has to be new before the log is cleaned. "
        f"{_NOT_CLEANED_YET}",
        aliases=("log.cleaner.min.cleanable.ratio",),
    ),
    _integer(
        "min.compaction.lag.ms",
        0,
        "ms",
        "How long a message of a compacted topic stays before it may be cleaned. At most "
        f"max.compaction.lag.ms. {_NOT_CLEANED_YET}",
        aliases=("log.cleaner.min.compaction.lag.ms",),
    ),
    _integer(
        "max.compaction.lag.ms",
        INT64_MAX,
        "ms",
        "How long a message of a compacted topic may wait to be cleaned. The default is no limit. "
        f"{_NOT_CLEANED_YET}",
        minimum=1,
        aliases=("log.cleaner.max.compaction.lag.ms",),
    ),
    _integer(
        "delete.retention.ms",
        _DAY_MS,
        "ms",
        "How long the mark of a deleted key (a message without a value) stays in a compacted topic "
        f"once it was cleaned. {_NOT_CLEANED_YET}",
        aliases=("log.cleaner.delete.retention.ms",),
    ),
    _integer(
        "max.message.bytes",
        1_000_012,
        "bytes",
        "Maximum size of a message as stored: a compressed set counts as one message, and the 12 "
        "bytes of offset and size count too. Lowering it does not affect stored data.",
        maximum=INT32_MAX,
        aliases=("message.max.bytes",),
    ),
    _integer(
        "max.decompressed.bytes",
        16 * 2**20,
        "bytes",
        "Maximum size of a compressed set after decompression. Producers limit a set to about 1 "
        "MB before compression, so the default allows sixteen times that and still stops a "
        "decompression bomb early.",
        minimum=1024,
        maximum=INT32_MAX,
    ),
    _integer(
        "file.delete.delay.ms",
        60_000,
        "ms",
        "How long the files of a deleted segment or topic stay on disk, renamed to `.deleted`.",
        aliases=("log.segment.delete.delay.ms",),
    ),
    _integer(
        "flush.messages",
        INT64_MAX,
        "messages",
        "Number of appended messages after which the log is synced to disk, whatever the "
        "producers ask for. The default leaves it to acks.all.durability and the operating "
        "system.",
        zero_in_broker=False,
        aliases=("log.flush.interval.messages",),
    ),
    _integer(
        "flush.ms",
        INT64_MAX,
        "ms",
        "How long an appended message may stay unsynced. The default is no limit, or "
        "log.flush.scheduler.interval.ms if that is set.",
        aliases=("log.flush.interval.ms",),
    ),
    _integer(
        "producer.id.expiration.ms",
        _DAY_MS,
        "ms",
        "How long a partition remembers the batches of a silent idempotent producer, to recognise "
        "retries. Set it longer than the longest pause of a producer.",
        minimum=1,
        maximum=INT32_MAX,
    ),
    _integer(
        "max.producer.ids",
        10_000,
        "",
        "Number of idempotent producers that a partition remembers: this many with an id from the "
        "broker, and this many that chose their own id (with bit 62), such as the tasks of a "
        "Spark stream, which take a new id for each batch. One more makes the partition forget "
        "the longest silent producer of its kind. max.producer.states.bytes limits the memory of "
        "all of them.",
        minimum=1,
        maximum=1_000_000,
    ),
    _choice(
        "acks.all.durability",
        ("fsync", "written"),
        "What an answer to acks=all guarantees. `fsync`: the data is on disk and survives a power "
        "cut. `written`: the operating system has the data, which survives a killed broker but "
        "not a power cut. In a cluster this holds for every broker in sync. The leader's broker "
        "value applies to topics without their own, and to changes of topics and positions.",
    ),
    Setting(
        name="preallocate",
        scope=Scope.TOPIC,
        kind=Kind.BOOLEAN,
        default=False,
        choices=("false",),
        doc="Only false: files grow as they are written. It exists because Kafka's tools send it.",
        why_not="Files are never preallocated.",
        aliases=("log.preallocate",),
    ),
    _integer(
        "min.insync.replicas",
        1,
        "",
        "Number of brokers, including the leader, that have to be in sync; otherwise acks=all is "
        "refused and nothing is appended. A single broker counts as one. A value above the number "
        "of brokers causes a warning in the log, by `horolog topic` and by `horolog doctor`. The "
        "broker's value applies to topics without their own, to positions, and to changes of "
        "topics. If it equals cluster.brokers, every follower can be promoted by hand without "
        "loss, but acks=all is refused while one is out of sync; a topic may not have a lower "
        "value then.",
        minimum=1,
        maximum=INT32_MAX,
    ),
    _choice(
        "unclean.leader.election.enable",
        ("false",),
        "Only false: cluster.unclean.leader.election.enable decides. It exists because Kafka's "
        "tools send it.",
        why_not="cluster.unclean.leader.election.enable decides for all topics.",
    ),
    _choice(
        "message.downconversion.enable",
        ("true",),
        "Only true: readers of older formats get converted messages. It exists because Kafka's "
        "tools send it.",
        why_not="Who can read only older formats is never refused.",
    ),
)

TOPIC_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    {setting.name: setting for setting in _DECLARED}
)
"""Every topic setting by canonical name, in the order of the documentation."""

_NO_REPLICATION: Final = "belongs to Kafka's replication; a follower here copies everything"

TOPIC_NAMES_NOT_OFFERED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "leader.replication.throttled.replicas": _NO_REPLICATION,
        "follower.replication.throttled.replicas": _NO_REPLICATION,
    }
)
"""Kafka's topic settings that do not exist in Horolog: name -> reason, as the end of a sentence."""
