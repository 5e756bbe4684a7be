"""A client that remembers what it was promised, for brokers whose disk gives out."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from horolog.protocol.api.groups.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.groups.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from horolog.protocol.errors import NO_ERROR, StorageError
from horolog.protocol.records.messages.sets import records
from horolog.storage.check.verify import verify
from horolog.storage.files import SystemFiles
from horolog.testing.requests import create_topic, fetch, message_set, produce, result
from horolog.testing.wire import Wire

REFUSED = StorageError.code


@dataclass
class Correspondent:
    """One connection to a broker, and what was acknowledged on it and on earlier ones."""

    wire: Wire
    acknowledged: dict[str, dict[int, bytes]] = field(default_factory=dict)
    """By topic, values by offset."""
    positions: dict[str, int] = field(default_factory=dict)
    sent: int = 0

    async def create(self, topic: str, **settings: Any) -> int:
        """Make a topic; returns the error code."""
        answer = await self.wire.call(create_topic(topic, **settings))
        code: int = answer.topics[0].error_code
        if code == NO_ERROR:
            self.acknowledged[topic] = {}
        return code

    async def produce(self, topic: str, *, acks: int = 1, timestamp_ms: int = -1) -> int:
        """Send one set of three messages; returns the error code."""
        self.sent += 1
        value = b"%s %d " % (topic.encode(), self.sent) + b"." * 150
        times = [timestamp_ms] * 3
        answer = result(
            await self.wire.call(produce(topic, message_set(*times, value=value), acks=acks))
        )
        code: int = answer.error_code
        if code == NO_ERROR:
            offsets = range(answer.base_offset, answer.base_offset + 3)
            self.acknowledged[topic] |= dict.fromkeys(offsets, value)
        return code

    async def commit(self, topic: str, offset: int) -> int:
        """Commit a position; returns the error code."""
        partition = OffsetCommitPartition(partition=0, committed_offset=offset)
        topics = [OffsetCommitTopic(name=topic, partitions=[partition])]
        request = OffsetCommitRequest(group_id="job", topics=topics)
        code: int = result(await self.wire.call(request)).error_code
        if code == NO_ERROR:
            self.positions[topic] = offset
        return code

    async def check(self, *topics: str) -> None:
        """Everything that was acknowledged can be read, and nothing else."""
        for topic in topics or self.acknowledged:
            assert await self.read(topic) == self.acknowledged[topic], topic
        for topic, offset in self.positions.items():
            asked = OffsetFetchTopic(name=topic, partitions=[0])
            answer = await self.wire.call(OffsetFetchRequest(group_id="job", topics=[asked]))
            assert result(answer).committed_offset == offset

    async def read(self, topic: str) -> dict[int, bytes | None]:
        """What a topic has, from its first message on."""
        found: dict[int, bytes | None] = {}
        offset = min(self.acknowledged[topic], default=0)
        while True:
            answer = result(await self.wire.call(fetch(topic, (0, offset))))
            assert answer.error_code == NO_ERROR, answer.error_message
            if not answer.records:
                return found
            for record in records(answer.records, max_decompressed_bytes=1 << 20):
                if record.offset >= offset:
                    found[record.offset] = record.value
            offset = max(found) + 1


def check_files(data_dir: Path) -> None:
    """Nothing is wrong with what a stopped broker left."""
    assert [finding for finding in verify(SystemFiles(), data_dir) if finding.error] == []
