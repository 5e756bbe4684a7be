"""Topics that a real Kafka wrote, and what it said of them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horolog.protocol.records.kernel import walk
from horolog.protocol.records.messages.sets import records
from horolog.storage.log.log import Log
from horolog.storage.read import reader

GOLDEN = Path(__file__).parent
EARLIEST, LATEST = -2, -1
NOT_BEFORE_0_10 = 43
"""What Kafka answers where the topic's format knows no times."""
NOTHING_FOUND = (-1, -1)

Headers = tuple[tuple[str, bytes | None], ...]
Message = tuple[int, int, bytes | None, bytes | None, Headers]
"""Offset, timestamp, key, value, headers."""


@dataclass(frozen=True)
class Topic:
    """One topic, and what Kafka said of it."""

    version: str
    name: str
    state: str
    """`clean` after a clean stop, `killed` while the broker ran."""

    @property
    def id(self) -> str:
        return f"{self.name}-{self.state}"

    @property
    def folder(self) -> Path:
        return GOLDEN / self.version / self.name

    @property
    def files(self) -> Path:
        return self.folder / self.state

    @property
    def expected(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "expected.json").read_text())
        return content

    @property
    def timestamp_type(self) -> str:
        kind: str = self.expected["settings"].get("message.timestamp.type", "CreateTime")
        return kind

    @property
    def messages(self) -> list[Message]:
        return _messages(self.expected["messages"])

    @property
    def committed_messages(self) -> list[Message]:
        """What a reader of committed messages gets."""
        expected = self.expected
        return _messages(expected.get("messages_read_committed", expected["messages"]))

    @property
    def end_offset(self) -> int:
        """Where the log ends: behind a mark, perhaps, that is no message."""
        return max([self.messages[-1][0] + 1, *self.snapshots])

    @property
    def snapshots(self) -> list[int]:
        """The offsets of Kafka's snapshots of its producers."""
        return [int(path.stem) for path in self.files.glob("*.snapshot")]

    @property
    def offsets_asked(self) -> list[list[int]]:
        asked: list[list[int]] = self.expected.get("list_offsets_v1", [])
        return asked

    @property
    def answers(self) -> list[tuple[int, tuple[int, int]]]:
        """Target, and the timestamp and offset found for it.

        Without a message format set for the topic, messages without times are just not found.
        """
        return [
            (target, NOTHING_FOUND if error == NOT_BEFORE_0_10 else (timestamp_ms, offset))
            for target, error, timestamp_ms, offset in self.offsets_asked
        ]

    def logs(self) -> dict[str, bytes]:
        """Kafka's log files."""
        return {path.name: path.read_bytes() for path in self.files.glob("*.log")}


def _messages(rows: list[list[Any]]) -> list[Message]:
    return [
        (offset, timestamp_ms, _encoded(key), _encoded(value), _headers(headers))
        for offset, timestamp_ms, key, value, *headers in rows
    ]


def _headers(given: list[list[tuple[str, str | None]]]) -> Headers:
    return tuple((name, _encoded(value)) for name, value in (given[0] if given else ()))


def _encoded(text: str | None) -> bytes | None:
    return text if text is None else text.encode()


TOPICS = [
    Topic(expected.parent.parent.name, expected.parent.name, state)
    for expected in sorted(GOLDEN.glob("*/*/expected.json"))
    for state in ("clean", "killed")
    if (expected.parent / state).is_dir()
]


def clean_topics(version: str) -> list[Topic]:
    """Those of one Kafka that were stopped cleanly."""
    return [topic for topic in TOPICS if topic.version == version and topic.state == "clean"]


def read_all(log: Log) -> Iterator[Message]:
    """What a consumer reads, slice by slice."""
    offset = log.log_start_offset
    while offset < log.high_watermark:
        data = reader.read(log, offset, 2_000, whole_first=True).read()
        for record in records(data, max_decompressed_bytes=1 << 24, from_offset=offset):
            yield record.offset, record.timestamp_ms, record.key, record.value, record.headers
        offset = walk(data, 0, len(data)).last_offset + 1


def answer(log: Log, target: int) -> tuple[int, int]:
    """Timestamp and offset, as list-offsets version 1 answers."""
    if target == LATEST:
        return -1, log.high_watermark
    if target == EARLIEST:
        return -1, log.log_start_offset
    found = reader.find_time(log, target).run()
    return (found.timestamp_ms, found.offset) if found else NOTHING_FOUND
