"""Random logs of every kind, and a plain list of what is in them."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from horolog.protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from horolog.protocol.records.batch import read_header, write_header
from horolog.protocol.records.kernel.reference.times import time_map_blocks
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set, entries
from horolog.server.broker import Broker
from horolog.storage.log.log import Log
from horolog.testing.clock import MovingClock
from horolog.testing.logs import empty_batch
from horolog.testing.requests import create_topic, produce, result
from horolog.testing.wire import Wire
from horolog.tests.followers.appending import append_copy
from horolog.tests.properties.model import StoredEntries

T0: Final = 1_479_132_000_000
DAY_MS: Final = 86_400_000
TRANSACTIONAL, CONTROL = 0x10, 0x30
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
PLAIN: Final[dict[str, Any]] = {}
SETTINGS: Final[tuple[dict[str, Any], ...]] = (
    PLAIN,
    PLAIN,
    PLAIN,
    {"message_timestamp_type": "LogAppendTime"},
    {"compression_type": "gzip"},
    {"compression_type": "zstd"},
    {"compression_type": "uncompressed"},
    {"message_timestamp_type": "LogAppendTime", "compression_type": "lz4"},
)


@dataclass(frozen=True)
class Known:
    """A message as the list has it."""

    offset: int
    time_ms: int
    append_ms: int
    """-1: not known."""
    value: bytes
    aborted: bool = False


class RandomLog:
    """A topic with one partition, and what is in it."""

    def __init__(self, broker: Broker, clock: MovingClock, topic: str, random: Random) -> None:
        self.topic = topic
        self.settings = random.choice(SETTINGS)
        self.known: list[Known] = []
        self._broker = broker
        self._clock = clock
        self._random = random
        self._numbers = iter(range(10**9))
        self._producer_id = 1_000
        self._in_order = random.random() < 0.3
        self._spread_ms = random.choice([30, 30, 3_000, DAY_MS])
        self._magics = random.choice([[0], [1], [2], [2], [1, 2], [0, 1, 2]])
        self._began = 0
        self.may_be_cut = True
        """Whether no transaction would be cut in two."""

    @property
    def log(self) -> Log:
        return self._broker.services.logs.find(self.topic, 0)

    async def make(self, client: Wire) -> None:
        size = self._random.choice([100_000, 130_000, 1 << 30])
        made = await client.call(
            create_topic(self.topic, 1, segment_bytes=size, retention_ms=-1, **self.settings)
        )
        assert made.topics[0].error_code == 0, made

    async def grow(self, client: Wire) -> None:
        """Append something, or remove something."""
        random = self._random
        await random.choice(
            [
                *[self.send] * 8,
                self.send_again,
                self.copy,
                self.copy,
                self.append_empty,
                self.append_transaction,
                self.cut_off,
                self.trim,
            ]
        )(client)
        self._clock.jump(random.choice([0, 0, 0.001, 0.007, 5.0]))

    def _times(self, count: int) -> list[int]:
        random, spread_ms = self._random, self._spread_ms
        if self._in_order:
            self._began += count
            return [T0 + self._began + number for number in range(count)]
        choices = [T0 + random.randrange(spread_ms) for _ in range(count)]
        return [random.choice([one] * 12 + [-1, T0 - DAY_MS, T0 + DAY_MS]) for one in choices]

    def _records(self, magic: int) -> list[NewRecord]:
        random = self._random
        count = random.choice([1, 2, 5, 30, random.randrange(1, 60)])
        size = random.choice([0, 20, 20, 200, 1_500])
        return [
            NewRecord(
                b"%d " % next(self._numbers) + random.randbytes(size),
                random.choice([None, b"k"]),
                time_ms if magic else -1,
                (("h", b"x"),) if magic == 2 and random.random() < 0.1 else (),
            )
            for time_ms in self._times(count)
        ]

    def _codec(self, magic: int) -> Codec:
        codecs = [Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
        return self._random.choice([*codecs, Codec.ZSTD] if magic == 2 else codecs)

    async def send(self, client: Wire, *, times: int = 1) -> None:
        """A producer's set, perhaps an idempotent one, sent so many times."""
        magic = self._random.choice(self._magics)
        new = self._records(magic)
        data = build_set(new, magic=magic, codec=self._codec(magic))
        if magic == 2 and (times > 1 or self._random.random() < 0.3):
            self._producer_id += 1
            numbers = {"producer_id": self._producer_id, "producer_epoch": 0, "base_sequence": 0}
            write_header(data, read_header(data)._replace(**numbers))
        elif times > 1:
            return
        first_offset = self.log.log_end_offset
        now_ms = self._clock.now_ms()
        for _ in range(times):
            request = produce(self.topic, bytes(data))
            answer = result(await client.call(request, 7 if magic == 2 else 2))
            assert (answer.error_code, answer.base_offset) == (0, first_offset), answer
        stamped = "message_timestamp_type" in self.settings
        self.known += [
            Known(offset, now_ms if stamped else one.timestamp_ms, now_ms, one.value or b"")
            for offset, one in enumerate(new, first_offset)
        ]

    async def send_again(self, client: Wire) -> None:
        """A retry, which is not appended."""
        await self.send(client, times=2)

    async def copy(self, _: Wire) -> None:
        """Sets of another log, with gaps between offsets; their append times are not known."""
        random = self._random
        magic = random.choice(self._magics)
        new = self._records(magic)[:20]
        codec = self._codec(magic)
        may_have = magic == 1 or (magic == 0 and not codec)
        inner = [random.choice([0, 0, 1, 3]) if may_have else 0 for _ in new[1:]]
        holes = (random.choice([0, 0, 1, 40]), *inner)
        stored = StoredEntries(magic, codec, tuple(new), holes, random.random() < 0.2)
        end = self.log.log_end_offset
        append_copy(self.log, stored.encoded(end))
        self.known += [
            Known(one.offset, one.timestamp_ms, -1, one.value or b"")
            for one in stored.messages(end)
        ]

    async def append_empty(self, _: Wire) -> None:
        """A batch without records, as Kafka's cleaner leaves it."""
        if self._magics[-1] == 2:
            end = self.log.log_end_offset
            behind = end + self._random.choice([1, 5])
            max_ms = self._random.choice([-1, T0 + 5])
            append_copy(self.log, empty_batch(end, behind, max_timestamp_ms=max_ms))

    async def append_transaction(self, client: Wire) -> None:
        """Batches of a transaction and its control batch, with others between."""
        if self._magics != [2]:
            return
        self.may_be_cut = False
        self._producer_id += 1
        aborted, sequence = self._random.random() < 0.5, 0
        for _ in range(self._random.choice([1, 2])):
            new, end = self._records(2), self.log.log_end_offset
            data = build_set(new, magic=2, codec=self._codec(2), base_offset=end)
            self._append_batch(data, TRANSACTIONAL, sequence)
            sequence += len(new)
            self.known += [
                Known(offset, one.timestamp_ms, -1, one.value or b"", aborted)
                for offset, one in enumerate(new, end)
            ]
            if self._random.random() < 0.3:
                await self.append_empty(client)
        mark = NewRecord(b"\0\0\0\0\0\0", ABORT if aborted else COMMIT, T0 + 3)
        control = build_set([mark], magic=2, base_offset=self.log.log_end_offset)
        self._append_batch(control, CONTROL, -1)

    def _append_batch(self, data: bytearray, attributes: int, sequence: int) -> None:
        header = read_header(data)
        write_header(
            data,
            header._replace(
                attributes=header.attributes | attributes,
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=sequence,
            ),
        )
        append_copy(self.log, data)

    async def cut_off(self, _: Wire) -> None:
        """The log loses what is behind an offset, as after a change of the leader."""
        log = self.log
        if not self.may_be_cut or not self.known:
            return
        offset = self._random.randrange(self.known[0].offset, log.log_end_offset + 1)
        offset = max(offset, log.log_start_offset, log.log_end_offset - 60)
        ends = [
            entry.offset
            for segment in log.segments
            for entry in entries(segment.log_path.read_bytes())
        ]
        kept = max((last for last in ends if last < offset), default=-1)
        log.truncate(offset)
        self.known = [one for one in self.known if one.offset <= kept]

    async def trim(self, client: Wire) -> None:
        """Delete records below an offset."""
        log = self.log
        first, end = log.log_start_offset, log.high_watermark
        offset = self._random.randrange(first, min(first + 20, end) + 1)
        partition = DeleteRecordsPartition(partition=0, offset=offset)
        named = DeleteRecordsTopic(name=self.topic, partitions=[partition])
        answer = result(await client.call(DeleteRecordsRequest(topics=[named], timeout_ms=1000)))
        assert answer.error_code == 0, answer

    def inside(
        self, from_ms: int, until_ms: int | None, *, by_append: bool, committed: bool
    ) -> list[Known]:
        """The messages of a window, from the log start on."""

        def is_inside(one: Known) -> bool:
            time_ms = one.append_ms if by_append else one.time_ms
            if time_ms < from_ms or (until_ms is not None and time_ms >= until_ms):
                return False
            return one.offset >= self.log.log_start_offset and not (committed and one.aborted)

        return [one for one in self.known if is_inside(one)]

    def answering_bytes(self, answers: list[Known]) -> tuple[int, int]:
        """The bytes of the blocks that hold one of these messages, and those that no map covers."""
        offsets = [one.offset for one in answers]
        total = tail = 0
        for segment in self.log.segments:
            for block in time_map_blocks(segment.time_map.data(), segment.base_offset):
                if any(block.offset <= offset < block.next_offset for offset in offsets):
                    total += block.end - block.position
            tail += segment.size_bytes - segment.time_map.log_bytes
        return total, tail


def windows(random: Random, now_ms: int) -> Iterator[tuple[int, int | None, bool]]:
    """Windows of a log: from when to when, and whether by append time."""
    for _ in range(3):
        by_append = random.random() < 0.3
        around_ms = now_ms if by_append else T0
        reach_ms = random.choice([10, 40, 3_000, DAY_MS])
        from_ms = around_ms + random.randrange(-reach_ms // 4, reach_ms)
        length_ms = random.choice([1, 7, reach_ms, 2 * DAY_MS])
        yield from_ms, random.choice([from_ms + length_ms] * 3 + [None]), by_append
