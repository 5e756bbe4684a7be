"""Windows of a topic with transactions that Kafka wrote, as librdkafka reads them."""

import random
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from horolog.storage.index import time_map
from horolog.storage.log import admission
from horolog.storage.read import windows
from horolog.testing.broker import BrokerThread
from horolog.tests.golden.kafka import Topic

TOPIC = Topic("kafka-2.1", "v2-transactions", "clean")
WITHIN_S = 20


def read(server: BrokerThread, name: str, isolation: str, size: int) -> list[int]:
    """Offsets up to the end of the partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.kafka_address,
            "group.id": "g",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "max.partition.fetch.bytes": size,
            "fetch.wait.max.ms": 50,
        }
    )
    found: list[int] = []
    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        while True:
            message = consumer.poll(WITHIN_S)
            assert message is not None, f"no end after {found}"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            offset = message.offset()
            assert offset is not None
            found.append(offset)
    finally:
        consumer.close()


@pytest.mark.parametrize("block_bytes", [600, 64 << 10])
def test_what_was_committed_in_a_window_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    for module in (time_map, admission):
        monkeypatch.setattr(module, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(windows, "UNMAPPED_BYTES", block_bytes)
    shutil.copytree(TOPIC.files, tmp_path / "data" / "t-0")
    all_of_them = [(offset, at_ms) for offset, at_ms, *_ in TOPIC.messages]
    committed = [(offset, at_ms) for offset, at_ms, *_ in TOPIC.committed_messages]
    first_ms, last_ms = min(ms for _, ms in committed), max(ms for _, ms in committed)
    rng = random.Random(block_bytes)
    settings = {"kafka.listen": "127.0.0.1:0", "retention.ms": "-1"}
    with BrokerThread(tmp_path / "data", settings) as server:
        for _ in range(4):
            from_ms = rng.randrange(first_ms, last_ms)
            until_ms = from_ms + rng.randrange(1, (last_ms - first_ms) // 4)
            name, size = f"t..{from_ms}..{until_ms}", rng.choice([2_000, 1 << 20])
            for isolation, times in (
                ("read_committed", committed),
                ("read_uncommitted", all_of_them),
            ):
                assert read(server, name, isolation, size) == [
                    offset for offset, ms in times if from_ms <= ms < until_ms
                ]
