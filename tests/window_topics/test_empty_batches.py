"""Batches without messages among the sets of a window, as Kafka's cleaner leaves them: no answer
begins with one, and a reader still finds the end."""

import pytest

from horolog.protocol.records.kernel import walk
from horolog.protocol.records.layout import MAGIC_AT
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.server.broker import Broker
from horolog.storage.index import time_map
from horolog.storage.log import admission
from horolog.storage.log.log import Log
from horolog.storage.read import windows
from horolog.testing.logs import empty_batch
from horolog.testing.requests import create_topic, fetch, result
from horolog.testing.wire import Wire
from horolog.tests.followers.appending import append_copy

from .reading import latest, read

AT_14 = 1_479_132_000_000
WINDOW = "t..20161114T14Z..1h"
LARGE_BYTES, ROOM_BYTES = 300_000, 150_000


@pytest.fixture
async def log(broker: Broker, client: Wire, monkeypatch: pytest.MonkeyPatch) -> Log:
    """With a time map of the smallest log, so that sets go as they are stored."""
    for module in (time_map, admission):
        monkeypatch.setattr(module, "BLOCK_BYTES", 100)
    monkeypatch.setattr(windows, "UNMAPPED_BYTES", 100)
    await client.call(create_topic("t", retention_ms=-1))
    return broker.services.logs.find("t", 0)


def add(log: Log, *, magic: int = 2, value_bytes: int = 100) -> int:
    """A message of the window; its offset."""
    end = log.log_end_offset
    append_copy(
        log, build_set([NewRecord(bytes(value_bytes), b"k", AT_14)], magic=magic, base_offset=end)
    )
    return end


def add_empty(log: Log, offsets: int = 5) -> None:
    end = log.log_end_offset
    append_copy(log, empty_batch(end, end + offsets))


async def test_the_end_behind_one(client: Wire, log: Log) -> None:
    offsets = [add(log), add(log)]
    add_empty(log)
    assert [one.offset for one in await read(client, WINDOW)] == offsets
    assert await latest(client, WINDOW) == 2
    answer = result(await client.call(fetch(WINDOW, (0, 0), min_bytes=1, max_wait_ms=100), 10))
    sent = walk(bytes(answer.records), 0, len(answer.records))
    assert answer.high_watermark == sent.last_offset + 1
    behind = fetch(WINDOW, (0, answer.high_watermark), min_bytes=1, max_wait_ms=10)
    at_end = result(await client.call(behind, 10))
    assert (at_end.high_watermark, bytes(at_end.records)) == (answer.high_watermark, b"")


@pytest.mark.parametrize("magic", [1, 2])
async def test_one_before_messages(client: Wire, log: Log, magic: int) -> None:
    first = add(log)
    add_empty(log)
    add_empty(log)
    second = add(log, magic=magic)
    request = fetch(WINDOW, (0, first + 1), min_bytes=1, max_wait_ms=100)
    answer = result(await client.call(request, 10))
    data = bytes(answer.records)
    assert walk(data, 0, len(data)).magics == 1 << magic
    assert data[MAGIC_AT] == magic
    assert walk(data, 0, len(data)).first_offset == second
    assert [one.offset for one in await read(client, WINDOW)] == [first, second]


async def test_one_before_a_set_that_has_no_room(client: Wire, log: Log) -> None:
    """What is sent from the file does not end within the first set that has messages."""
    first = add(log)
    add_empty(log)
    second = add(log, value_bytes=LARGE_BYTES)
    found = await read(client, WINDOW, first + 1, partition_max_bytes=ROOM_BYTES, max_wait_ms=100)
    assert [one.offset for one in found] == [second]
