"""What a log must do, said with a plain list.

`sent_as_stored` predicts what becomes of a set that a producer sends; `Model` answers searches
by looking at every message.
"""

from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate

from horolog.config.topic import TopicSettings
from horolog.protocol.records.batch import finish_batch
from horolog.protocol.records.kernel import RecordEncoder
from horolog.protocol.records.layout import ENTRY_OVERHEAD, Codec
from horolog.protocol.records.messages.sets import (
    NewRecord,
    build_set,
    build_wrapper,
    set_append_time,
)

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True)
class Message:
    """One message as a consumer sees it; `kind` is its timestamp type, `None` for v0."""

    offset: int
    timestamp_ms: int
    kind: str | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Quirk(Enum):
    """What some clients do to a v1 wrapper and a broker puts up with."""

    NONE = "written as it should be"
    OFFSET_ZERO = "the wrapper has offset 0 instead of its last message's"
    WRONG_TIME = "the wrapper has another time than the largest in it"
    INNER_OFFSETS = "the messages in it do not count from 0"


@dataclass(frozen=True)
class Part:
    """Messages of one format that are sent plain or, with a codec, as one wrapper; in v2 as one
    batch."""

    magic: int
    codec: Codec
    records: tuple[NewRecord, ...]
    quirk: Quirk = Quirk.NONE

    def encoded(self, base_offset: int = 0) -> bytearray:
        if self.quirk is Quirk.NONE or self.codec is Codec.NONE or not self.magic:
            return build_set(
                self.records, magic=self.magic, codec=self.codec, base_offset=base_offset
            )
        first = 3 if self.quirk is Quirk.INNER_OFFSETS else 0
        inner = build_set(self.records, base_offset=first)
        largest_ms = max(record.timestamp_ms for record in self.records)
        return build_wrapper(
            inner,
            offset=0 if self.quirk is Quirk.OFFSET_ZERO else base_offset + len(self.records) - 1,
            timestamp_ms=5_000 if self.quirk is Quirk.WRONG_TIME else largest_ms,
            magic=1,
            codec=self.codec,
        )


@dataclass(frozen=True)
class SentSet:
    """A message set of a producer."""

    parts: tuple[Part, ...]

    def encoded(self) -> bytearray:
        """Its bytes; offsets count on from part to part, as if it were one set."""
        counts = accumulate((len(part.records) for part in self.parts), initial=0)
        return bytearray().join(
            part.encoded(base) for part, base in zip(self.parts, counts, strict=False)
        )

    @property
    def codec(self) -> Codec:
        """The codec that the whole set counts as: that of its last wrapper."""
        return next((part.codec for part in reversed(self.parts) if part.codec), Codec.NONE)


@dataclass(frozen=True)
class StoredEntries:
    """Messages as another log may have stored them, with holes between their offsets."""

    magic: int
    codec: Codec
    records: tuple[NewRecord, ...]
    holes: tuple[int, ...]
    """For each record, how many offsets are missing before it."""
    append_time: bool

    def offsets(self, next_offset: int) -> list[int]:
        """The records' offsets, from `next_offset` on."""
        steps = (hole + 1 for hole in self.holes)
        return list(accumulate(steps, initial=next_offset - 1))[1:]

    @property
    def stamped(self) -> bool:
        return self.append_time and self.magic > 0

    @property
    def stamp_ms(self) -> int:
        """The append time that a wrapper of them has, and then all of them."""
        return max(0, *(record.timestamp_ms for record in self.records))

    def encoded(self, next_offset: int) -> bytearray:
        offsets = self.offsets(next_offset)
        if self.magic == 2:
            return self._batch(offsets[0])
        first = offsets[0] if self.codec and self.magic else 0
        plain = bytearray()
        for offset, record in zip(offsets, self.records, strict=True):
            entry = build_set([record], magic=self.magic, base_offset=offset - first)
            if self.stamped and not self.codec:
                set_append_time(entry, 0, len(entry) - ENTRY_OVERHEAD, self.stamp_ms)
            plain += entry
        if not self.codec:
            return plain
        largest_ms = max(record.timestamp_ms for record in self.records)
        return build_wrapper(
            plain,
            offset=offsets[-1],
            timestamp_ms=self.stamp_ms if self.stamped else largest_ms,
            magic=self.magic,
            codec=self.codec,
            append_time=self.stamped,
        )

    def _batch(self, base_offset: int) -> bytearray:
        encoder = RecordEncoder()
        for record in self.records:
            encoder.add(record.value, record.key, record.timestamp_ms, record.headers)
        stamp_ms = self.stamp_ms if self.stamped else None
        return finish_batch(
            encoder, codec=self.codec, base_offset=base_offset, append_time_ms=stamp_ms
        )

    def messages(self, next_offset: int) -> list[Message]:
        kind = (LOG_APPEND_TIME if self.stamped else CREATE_TIME) if self.magic else None
        return [
            Message(
                offset,
                self.stamp_ms if self.stamped else record.timestamp_ms,
                kind,
                record.key,
                record.value,
                record.headers,
            )
            for offset, record in zip(self.offsets(next_offset), self.records, strict=True)
        ]


def sent_as_stored(
    sent: SentSet, settings: TopicSettings, first_offset: int, stamp_ms: int
) -> list[Message]:
    """The messages of `sent` as consumers of the topic will see them."""
    names = {"producer": sent.codec, "uncompressed": Codec.NONE}
    wanted = settings.compression_type
    codec = names[wanted] if wanted in names else Codec[wanted.upper()]
    newest = max(part.magic for part in sent.parts)
    one_format = newest if codec or newest == 2 else None
    if codec is Codec.LZ4:
        one_format = max(newest, 1)  # decision 25
    if codec is Codec.ZSTD:
        one_format = 2
    if settings.format_magic is not None:
        one_format = settings.format_magic
    messages: list[Message] = []
    for part in sent.parts:
        magic = part.magic if one_format is None else one_format
        for record in part.records:
            timestamp_ms, kind = (record.timestamp_ms, CREATE_TIME) if magic else (-1, None)
            if settings.stamps_append_time:
                timestamp_ms, kind = stamp_ms, LOG_APPEND_TIME
            offset = first_offset + len(messages)
            kept = record.headers if magic == 2 else ()
            messages.append(Message(offset, timestamp_ms, kind, record.key, record.value, kept))
    return messages


@dataclass
class Model:
    """A log as a list of its messages."""

    messages: list[Message] = field(default_factory=list)
    log_start_offset: int = 0
    high_watermark: int = 0
    last_stamp_ms: int = -1
    """What the next append time may not go below."""

    def look_for_last_stamp(self) -> None:
        """The append time of the last message if it has one, as a log finds it at start."""
        last = self.messages[-1] if self.messages else None
        stamped = last is not None and last.kind == LOG_APPEND_TIME
        self.last_stamp_ms = last.timestamp_ms if last is not None and stamped else -1

    @property
    def visible(self) -> list[Message]:
        """What consumers may see, in offset order."""
        return [
            message
            for message in self.messages
            if self.log_start_offset <= message.offset < self.high_watermark
        ]

    def find_time(self, target_ms: int) -> tuple[int, int] | None:
        """`(offset, timestamp)` of the first visible message that is late enough."""
        for message in self.visible:
            if message.timestamp_ms >= target_ms:
                return message.offset, message.timestamp_ms
        return None

    def find_largest(self) -> tuple[int, int] | None:
        """`(offset, timestamp)` of the first message with the largest timestamp of all."""
        timed = [message for message in self.visible if message.timestamp_ms >= 0]
        if not timed:
            return None
        latest = max(timed, key=lambda message: (message.timestamp_ms, -message.offset))
        return latest.offset, latest.timestamp_ms

    def targets(self) -> list[int]:
        """Every time worth searching for: each timestamp, one before it and one after it."""
        near = {m.timestamp_ms + delta for m in self.messages for delta in (-1, 0, 1)}
        return sorted(target for target in near | {0, 2**63 - 1} if 0 <= target < 2**63)
