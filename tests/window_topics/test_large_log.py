"""One message at the end of a log of 10 GB: it comes, and then one end."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import monotonic

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from horolog.bench.brokers import broker
from horolog.bench.raw_client import RawClient, check_end, encoded
from horolog.protocol.records.batch import build_batch
from horolog.protocol.records.messages.sets import NewRecord
from horolog.testing.requests import create_topic, produce

AT_14 = 1_479_132_000_000
HOUR_MS = 3_600_000
LAST_MS = AT_14 + 2_150_001
WINDOW = f"t..{LAST_MS}..{LAST_MS + 1}"
SET_MESSAGES, VALUE_BYTES = 1_000, 900
SOME_BYTES, ALL_BYTES = 32 << 20, 10 << 30
WITHIN_S = 600
QUIET_S = 3.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Removed at once: pytest keeps its own folders."""
    with tempfile.TemporaryDirectory(prefix="horolog-large-") as name:
        yield Path(name)


def sets(random: Random, *, between: bool) -> list[bytes]:
    """Sets without a message of the window. With `between`, its time is between theirs, so that no
    time map rules them out."""
    first_ms = AT_14 if between else AT_14 - 2 * HOUR_MS
    return [
        bytes(
            build_batch(
                [
                    NewRecord(
                        random.randbytes(VALUE_BYTES),
                        None,
                        first_ms + 2 * random.randrange(HOUR_MS // 2),
                    )
                    for _ in range(SET_MESSAGES)
                ]
            )
        )
        for _ in range(4)
    ]


def fill(client: RawClient, log_bytes: int, *, between: bool) -> int:
    """A log of so many bytes, and the message; how many messages it has."""
    client.call(create_topic("t", retention_ms=-1))
    some = sets(Random(1), between=between)
    requests = b"".join(encoded(produce("t", data, acks=1)) for data in some)
    times = log_bytes // sum(map(len, some)) + 1
    client.pipeline(requests, len(some), times, 2)
    last = bytes(build_batch([NewRecord(b"last", None, LAST_MS)]))
    client.exchange(encoded(produce("t", last, acks=1)))
    messages = times * len(some) * SET_MESSAGES + 1
    check_end(client, "t", messages)
    return messages


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("between", [False, True], ids=["other hours", "times between"])
@pytest.mark.parametrize(
    "log_bytes",
    [SOME_BYTES, pytest.param(ALL_BYTES, marks=pytest.mark.soak)],
    ids=["32 MiB", "10 GiB"],
)
def test_the_last_message_and_then_one_end(folder: Path, log_bytes: int, between: bool) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < 2 * log_bytes:
        pytest.skip(f"{free_bytes} bytes of the disk are free, {2 * log_bytes} are needed")
    with broker("--kafka-listen", "127.0.0.1:0", data=folder / "data") as (server, client):
        messages = fill(client, log_bytes, between=between)
        consumer = Consumer(
            {
                "bootstrap.servers": server.kafka,
                "group.id": "g",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
            }
        )
        consumer.assign([TopicPartition(WINDOW, 0, 0)])
        offsets, ends = list[int](), list[int]()
        until = monotonic() + WITHIN_S
        while monotonic() < until:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                offsets.append(message.offset() or 0)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends.append(len(offsets))
                until = min(until, monotonic() + QUIET_S)
        consumer.close()
    assert offsets == [messages - 1]
    assert ends == [1]
