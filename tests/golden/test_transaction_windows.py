"""Windows of what was committed, of a topic with transactions that Kafka wrote, over a broker."""

import random
import shutil
from pathlib import Path

import pytest

from horolog.client.consume.consumer import Consumer
from horolog.storage.index import time_map
from horolog.storage.log import admission
from horolog.storage.read import windows
from horolog.testing.broker import running_broker

from .kafka import Topic

TOPIC = Topic("kafka-2.1", "v2-transactions", "clean")
BLOCK_BYTES = 600
WINDOWS = 12


@pytest.mark.parametrize("seed", [1, 2])
async def test_they_are_exact_and_pass_over_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for module in (time_map, admission):
        monkeypatch.setattr(module, "BLOCK_BYTES", BLOCK_BYTES)
    monkeypatch.setattr(windows, "UNMAPPED_BYTES", BLOCK_BYTES)
    shutil.copytree(TOPIC.files, tmp_path / "data" / "t-0")
    times = [(offset, at_ms) for offset, at_ms, *_ in TOPIC.committed_messages]
    first_ms, last_ms = min(ms for _, ms in times), max(ms for _, ms in times)
    rng = random.Random(seed)
    skipped = []
    async with (
        running_broker(tmp_path / "data", retention_ms=-1) as broker,
        Consumer(
            broker.addresses.native, read_committed=True, partition_max_bytes=2_000
        ) as consumer,
    ):
        for _ in range(WINDOWS):
            from_ms = rng.randrange(first_ms, last_ms)
            until_ms = from_ms + rng.randrange(1, (last_ms - first_ms) // 8)
            window = consumer.window("t", from_ms, until_ms)
            found = [one.offset async for one in window]
            assert found == [offset for offset, ms in times if from_ms <= ms < until_ms]
            skipped.append(window.skipped_bytes / window.log_bytes)
    assert len(TOPIC.committed_messages) < len(TOPIC.messages)
    assert max(skipped) > 0.5, skipped
