"""The file of a recording: the messages of a window of time, as a test loads them again.

A line is a JSON object. The first says what was recorded:

    {"recording": 1, "topic": "clicks", "partitions": 3, "from_ms": 1479142800000,
     "until_ms": 1479146400000}

`from_ms` and `until_ms` are null for an open side. Each further line is a message as
`horolog consume --json` prints it and `horolog produce --json` takes it. The messages of a
partition stand in the order of their offsets.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ..protocol.errors import HorologError
from ..times import INT64_MAX
from ..values import value_class
from .json_lines import MAX_LINE_BYTES, PARTITION_MAX, InvalidLine, Message, parse_message

VERSION: Final = 1

NO_NOW: Final = 0
"""The time of a message without the field `timestamp_ms`, which no recording has."""


class NoRecording(HorologError, ValueError):
    """The file is no recording. The text says which line is wrong, and how."""


@value_class
class RecordingHead:
    """What was recorded."""

    topic: str
    partitions: int
    """Number of partitions of the topic."""
    from_ms: int | None
    """Start of the window; `None` for an open side."""
    until_ms: int | None
    """End of the window, exclusive."""

    def line(self) -> str:
        """Return the first line of the file."""
        return json.dumps(
            {
                "recording": VERSION,
                "topic": self.topic,
                "partitions": self.partitions,
                "from_ms": self.from_ms,
                "until_ms": self.until_ms,
            }
        )


class RecordingFile:
    """A recording that is read."""

    def __init__(self, path: Path) -> None:
        """Read the first line. Raises `OSError`, `NoRecording`."""
        self.path = path
        with path.open("rb") as file:
            self.head = _head(path, file.readline(MAX_LINE_BYTES))

    def messages(self) -> Iterator[Message]:
        """Yield the messages, each with its partition. Raises `OSError`, `NoRecording`."""
        with self.path.open("rb") as file:
            file.readline(MAX_LINE_BYTES)
            number = 1
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                if line.strip():
                    yield self._message(line, number)

    def _message(self, line: bytes, number: int) -> Message:
        try:
            message = parse_message(line, number, NO_NOW, any_unit=True)
        except InvalidLine as error:
            raise NoRecording(f"{self.path}: {error}") from None
        partitions = self.head.partitions
        if message.partition is None or message.partition >= partitions:
            raise NoRecording(
                f"{self.path}: line {number}: the partition must be 0 to {partitions - 1}, as the "
                f"first line says, not {json.dumps(message.partition)}"
            )
        return message


def _head(path: Path, line: bytes) -> RecordingHead:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or "recording" not in fields:
        raise NoRecording(
            f"{path} is no recording: its first line is not "
            '{"recording": 1, "topic": ..., "partitions": ...}, as `horolog record` writes it'
        )
    if fields["recording"] != VERSION:
        raise NoRecording(
            f"{path} is a recording of version {json.dumps(fields['recording'])[:20]}; this "
            f"program reads version {VERSION}"
        )
    topic, partitions = fields.get("topic"), fields.get("partitions")
    if not isinstance(topic, str) or not topic:
        raise NoRecording(f"{path}: the topic in the first line must be a name")
    return RecordingHead(
        topic,
        _whole(path, "partitions", partitions, 1, PARTITION_MAX),
        _bound(path, "from_ms", fields.get("from_ms")),
        _bound(path, "until_ms", fields.get("until_ms")),
    )


def _bound(path: Path, name: str, value: Any) -> int | None:
    return None if value is None else _whole(path, name, value, 0, INT64_MAX)


def _whole(path: Path, name: str, value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise NoRecording(
            f"{path}: {name} in the first line must be a whole number from {least} to {most}, not "
            f"{json.dumps(value)[:50]}"
        )
    return value
