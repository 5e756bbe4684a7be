"""`python -m horolog.bench.guard.pipelining [SECONDS] [NAME...]`: clients that pipeline requests
which need much memory, as fast as the broker reads them, for 10 seconds by default.

Each kind of request has a broker with default settings, 20 connections, and another client that
sends small requests. The table has the peak of the broker's memory, the part of it that was counted
(`horolog_buffered_bytes`), the number of answered requests, and the longest wait of the other
client. It fails if a broker took more than 400 MiB, or was not idle after all clients left.
"""

import re
import selectors
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Final

from ...config.address import split_address
from ...protocol.api.encodings import Encoding
from ...protocol.api.kafka import frames as kafka
from ...protocol.api.log.count_by_time import CountByTimeRequest
from ...protocol.api.log.describe_log import DescribeLogRequest, DescribeLogTopic
from ...protocol.api.log.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ...protocol.api.log.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ...protocol.api.log.offset_for_leader_epoch import (
    OffsetForLeaderEpochPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochTopic,
)
from ...protocol.api.native import frames as native
from ...protocol.api.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ...protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ...protocol.limits import LENGTH_BYTES, MAX_INTERVALS, MAX_PARTITIONS, MAX_TOPICS
from ...protocol.window_topics import parse_window_name
from ...testing.program import ServerProcess
from ...testing.requests import create_topic, fetch, message_set, produce
from ...values import value_class
from ..brokers import MIB, broker, data_folder, echo_request, processor_seconds
from ..raw_client import encoded

LIMIT_BYTES: Final = 400 * MIB
WINDOW: Final = "bench..1500000000000..1500000000001"
CONNECTIONS: Final = 20
SECONDS: Final = 10.0
_MANY: Final = 24_000
"""Number of partitions in one request."""
_AT_ONCE_BYTES: Final = 1 << 18
"""Bytes written to one connection at once."""
_QUIET_SECONDS: Final = 0.5
_QUIET_SHARE: Final = 0.2
_QUIET_WITHIN_SECONDS: Final = 30.0
"""Time limit after the last connection is gone. Within it the broker has to stay below
`_QUIET_SHARE` of a processor for `_QUIET_SECONDS`."""
_BUFFERED: Final = re.compile(r"^horolog_buffered_bytes (\S+)", re.MULTILINE)


@value_class
class Attack:
    """One kind of request, and how the clients send it."""

    encoding: Encoding
    body: object
    reads: bool = True
    """Whether the clients read the answers."""
    needs_messages: bool = False
    """Whether the topic has 12 MB of messages, every other one of them in the window `WINDOW`."""

    def frame(self) -> bytes:
        return encoded(self.body, encoding=self.encoding)


def attacks() -> dict[str, Attack]:
    """Return all kinds of requests, by name."""
    counts = CountByTimeRequest(
        topic="bench", partition=0, from_ms=0, until_ms=MAX_INTERVALS, every_ms=1
    )
    listed = [ListOffsetsPartition(partition=each, timestamp=-1) for each in range(_MANY)]
    epoch = OffsetForLeaderEpochPartition(partition=0, leader_epoch=0)
    gone = DeleteRecordsPartition(partition=0, offset=0)
    listing = ListOffsetsRequest(topics=[ListOffsetsTopic(name="bench", partitions=listed)])
    epochs = OffsetForLeaderEpochTopic(name="bench", partitions=[epoch] * _MANY)
    deletion = DeleteRecordsTopic(name="bench", partitions=[gone] * _MANY)
    folders = DescribableLogDirTopic(name="bench", partitions=[0] * MAX_PARTITIONS)
    segments = DescribeLogTopic(name="bench", partitions=[0] * MAX_PARTITIONS)
    more = CreatePartitionsTopic(name="bench", count=51)
    window = fetch(WINDOW, (0, 0), min_bytes=1, partition_max_bytes=1 << 26)
    return {
        "count_by_time": Attack(native, counts, reads=False),
        "count_by_time_read": Attack(native, counts),
        "list_offsets": Attack(kafka, listing),
        "epochs": Attack(kafka, OffsetForLeaderEpochRequest(topics=[epochs])),
        "delete_records": Attack(kafka, DeleteRecordsRequest(topics=[deletion])),
        "describe_log": Attack(native, DescribeLogRequest(topics=[segments])),
        "describe_log_dirs": Attack(kafka, DescribeLogDirsRequest(topics=[folders])),
        "create_partitions": Attack(
            kafka, CreatePartitionsRequest(topics=[more] * MAX_TOPICS, validate_only=True)
        ),
        "fetch_window": Attack(kafka, window, reads=False, needs_messages=True),
    }


@value_class
class Pipelined:
    """The results of one kind of request."""

    name: str
    sent: int
    answered: int
    peak_bytes: int
    counted_bytes: int
    longest_seconds: float
    is_quiet: bool
    """Whether the broker was idle after all clients left."""

    @property
    def is_bounded(self) -> bool:
        return self.peak_bytes <= LIMIT_BYTES and self.is_quiet


def pipelined(
    name: str, attack: Attack, *, seconds: float = SECONDS, answers: int | None = None
) -> Pipelined:
    """Measure one kind until `answers` requests were answered, or for `seconds`."""
    with ExitStack() as stack:
        data = stack.enter_context(data_folder())
        options = ("--kafka-listen", "127.0.0.1:0")
        server, client = stack.enter_context(broker(*options, data=data))
        client.exchange(encoded(create_topic("bench", partitions=50, retention_ms=-1)))
        for _ in range(12 if attack.needs_messages else 0):
            client.exchange(encoded(produce("bench", _in_and_out())))
        assert server.kafka is not None
        address = server.native if attack.encoding is native else server.kafka
        clients = [_Client(address, attack) for _ in range(CONNECTIONS)]
        waits: list[float] = []
        counted = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            _turn(clients)
            began = time.monotonic()
            client.exchange(echo_request())
            waits.append(time.monotonic() - began)
            if len(waits) % 50 == 1:
                counted = max(counted, _buffered_bytes(server))
            if _peak_bytes(server) > 2 * LIMIT_BYTES:
                break  # It may not stop before the machine has no more.
            if answers is not None and sum(each.answered for each in clients) >= answers:
                break
        for each in clients:
            each.close()
        return Pipelined(
            name,
            sum(each.sent for each in clients),
            sum(each.answered for each in clients),
            _peak_bytes(server),
            counted,
            max(waits),
            _gets_quiet(server),
        )


class _Client:
    """A connection that sends the same request repeatedly."""

    def __init__(self, address: str, attack: Attack) -> None:
        self._socket = socket.create_connection(split_address(address))
        self._socket.setblocking(False)
        frame = attack.frame()
        self._frame_bytes = len(frame)
        self._data = memoryview(frame * max(_AT_ONCE_BYTES // len(frame), 1))
        self._sent_bytes = self._left_bytes = 0
        self._head = b""
        self._reads = attack.reads
        self.answered = 0

    @property
    def sent(self) -> int:
        return self._sent_bytes // self._frame_bytes

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self) -> None:
        begin = self._sent_bytes % len(self._data)
        with suppress(BlockingIOError, ConnectionError):
            self._sent_bytes += self._socket.send(self._data[begin : begin + _AT_ONCE_BYTES])

    def receive(self) -> None:
        if not self._reads:
            return
        with suppress(BlockingIOError, ConnectionError):
            self._count(self._socket.recv(1 << 20))

    def close(self) -> None:
        self._socket.close()

    def _count(self, data: bytes) -> None:
        """Count the answers that begin in the received bytes."""
        position = 0
        while position < len(data):
            if self._left_bytes:
                step = min(self._left_bytes, len(data) - position)
                self._left_bytes -= step
                position += step
                continue
            part = data[position : position + LENGTH_BYTES - len(self._head)]
            self._head += part
            position += len(part)
            if len(self._head) == LENGTH_BYTES:
                self._left_bytes = int.from_bytes(self._head, "big")
                self._head = b""
                self.answered += 1


def _in_and_out() -> bytes:
    """Return a record set of about 1 MB. Every other message is in `WINDOW`."""
    window = parse_window_name(WINDOW)
    assert window is not None
    times = (window.from_ms, window.from_ms + 1000) * 450
    return message_set(*times, value=bytes(1000))


def _turn(clients: Sequence[_Client]) -> None:
    """Send and receive as much as possible without waiting."""
    with selectors.DefaultSelector() as selector:
        for each in clients:
            selector.register(each, selectors.EVENT_READ | selectors.EVENT_WRITE, each)
        for key, events in selector.select(0.01):
            if events & selectors.EVENT_READ:
                key.data.receive()
            if events & selectors.EVENT_WRITE:
                key.data.send()


def _peak_bytes(server: ServerProcess) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def _buffered_bytes(server: ServerProcess) -> int:
    try:
        with urllib.request.urlopen(f"http://{server.http}/metrics", timeout=5) as answer:
            found = _BUFFERED.search(answer.read().decode())
    except OSError:
        return 0
    assert found is not None
    return int(float(found[1]))


def _gets_quiet(server: ServerProcess) -> bool:
    """Return whether the broker becomes idle within `_QUIET_WITHIN_SECONDS`."""
    end = time.monotonic() + _QUIET_WITHIN_SECONDS
    while time.monotonic() < end:
        before = processor_seconds(server)
        time.sleep(_QUIET_SECONDS)
        if processor_seconds(server) - before < _QUIET_SHARE * _QUIET_SECONDS:
            return True
    return False


def measured(seconds: float, names: Sequence[str]) -> Iterator[Pipelined]:
    """Measure all kinds, or those in `names`."""
    for name, attack in attacks().items():
        if not names or name in names:
            yield pipelined(name, attack, seconds=seconds)


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table. Returns 1 if a broker exceeded its bound."""
    seconds = float(arguments[0]) if arguments else SECONDS
    names = ("sent", "answered", "peak MiB", "counted MiB", "longest ms", "quiet")
    print(f"{'':<20}" + "".join(f"{name:>13}" for name in names))
    bounded = True
    for each in measured(seconds, list(islice(arguments, 1, None))):
        memory = f"{each.peak_bytes / MIB:>13.0f}{each.counted_bytes / MIB:>13.0f}"
        rest = f"{each.longest_seconds * 1000:>13.0f}{'yes' if each.is_quiet else 'NO':>13}"
        print(f"{each.name:<20}{each.sent:>13,}{each.answered:>13,}{memory}{rest}", flush=True)
        bounded = bounded and each.is_bounded
    if not bounded:
        print(f"a broker took more than {LIMIT_BYTES // MIB} MiB, or was not quiet in the end")
    return 0 if bounded else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
