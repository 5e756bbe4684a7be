"""A topic with messages of a window among others, and what a program has read of the window."""

import re
import subprocess
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from horolog.testing.waiting import wait_until

from .messages import Messages
from .running import tail

CLICKS: Final = "clicks"
WINDOW: Final = f"{CLICKS}..20161114T14Z..1h"

_AT_14_MS: Final = 1_479_132_000_000
_HOUR_MS: Final = 3_600_000
_AFTER_MS: Final = (-1, 5, _HOUR_MS, _HOUR_MS - 1, -_HOUR_MS, 0, 2 * _HOUR_MS, 7, 9 * _HOUR_MS)
"""Times of the messages of a set, from 14:00 on."""
_SETS: Final = 30
_WITHIN_S: Final = 120
_LINE: Final = re.compile(r"(?:Partition:)?(\d)\s(?:Offset:)?(\d+)")

Place = tuple[int, int]
"""Partition and offset of a message."""


class Clicks:
    """A topic of two partitions. In the first one, each set has messages of the window and others;
    the second one has only others."""

    def __init__(self, address: str, codecs: Sequence[str]) -> None:
        self._address = address
        self._ends = [0, 0]
        self.inside: list[Place] = []
        """The messages of the window."""
        Messages(address).create(CLICKS, {}, partitions=2)
        for number in range(_SETS):
            self._send(0, _AFTER_MS, codecs[number % len(codecs)])
        self._send(1, [-1, _HOUR_MS])

    def send_late(self) -> None:
        """Send messages of the window, and others, to both partitions."""
        self._send(0, [_HOUR_MS, 17, -5, 18])
        self._send(1, [2 * _HOUR_MS])
        self._send(1, [3, _HOUR_MS, 4])

    def _send(self, partition: int, after_ms: Iterable[int], codec: str = "none") -> None:
        """Send messages as one set."""
        servers = {"bootstrap.servers": self._address}
        producer = Producer({**servers, "linger.ms": 60_000, "compression.type": codec})
        for one_ms in after_ms:
            time_ms = _AT_14_MS + one_ms
            producer.produce(CLICKS, b"a click " * 20, b"k", partition, timestamp=time_ms)
            if 0 <= one_ms < _HOUR_MS:
                self.inside.append((partition, self._ends[partition]))
            self._ends[partition] += 1
        assert producer.flush(_WITHIN_S) == 0


def places(text: str) -> list[Place]:
    """The messages of the lines `PARTITION OFFSET`, as Kafka's console consumer has them too; by
    partition, in the order of the lines."""
    found = [_LINE.fullmatch(line.strip()) for line in text.splitlines()]
    read = [(int(match[1]), int(match[2])) for match in found if match is not None]
    return sorted(read, key=lambda place: place[0])


def has_read(clicks: Clicks, log: Path) -> bool:
    """Whether a program has written a line for each message of the window, and no other."""
    return log.exists() and places(log.read_text("utf-8")) == sorted(clicks.inside)


def wait_read(clicks: Clicks, log: Path) -> None:
    """Wait until a program has read exactly the window."""
    wait_until(
        partial(has_read, clicks, log),
        within_s=_WITHIN_S,
        state=lambda: f"{sorted(clicks.inside)} are in the window\n{tail(log)}",
    )


def output(command: Sequence[object], *, seconds: float = _WITHIN_S) -> str:
    """What a program writes to its standard output. Fails with what it wrote to the other."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
