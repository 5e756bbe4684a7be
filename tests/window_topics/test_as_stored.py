"""Sets that go as stored: most fetches of a large window are answered from the file at once."""

import pytest

from horolog.protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from horolog.protocol.records.kernel import walk
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.server.handlers import window_fetch, window_reads
from horolog.storage.index import time_map
from horolog.storage.log import admission
from horolog.storage.read import windows as storage_windows
from horolog.testing.requests import create_topic, fetch, produce, result, results
from horolog.testing.wire import Wire

from .reading import latest, read

AT_14 = 1_479_132_000_000
MINUTE_MS = 60_000
SETS, MESSAGES = 60, 20
BEGIN, END = 10, 50
"""The sets in the window; it ends within the last one."""
WINDOW = f"t..{AT_14 + BEGIN * MINUTE_MS + 5}..{AT_14 + END * MINUTE_MS + 5}"
FIRST, BEHIND = BEGIN * MESSAGES + 5, END * MESSAGES + 5
"""The first offset in the window, and the offset behind the last one."""
FETCH_BYTES = 8_000


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (time_map, admission):
        monkeypatch.setattr(module, "BLOCK_BYTES", 600)
    monkeypatch.setattr(storage_windows, "UNMAPPED_BYTES", 600)
    monkeypatch.setattr(window_reads, "MIN_FILE_RANGE_BYTES", 4_000)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics of fetches that were answered by a search."""
    found: list[str] = []
    search = window_fetch._WindowFetch.answer

    async def answer(fetching: window_fetch._WindowFetch) -> object:
        found.append(fetching._request.topics[0].name)
        return await search(fetching)

    monkeypatch.setattr(window_fetch._WindowFetch, "answer", answer)
    return found


async def fill(client: Wire, partitions: int = 1) -> None:
    made = await client.call(create_topic("t", partitions, retention_ms=-1), 3)
    assert made.topics[0].error_code == 0
    for partition in range(partitions):
        for number in range(SETS):
            times = [AT_14 + number * MINUTE_MS + one for one in range(MESSAGES)]
            data = bytes(build_set([NewRecord(b"v" * 90, None, ms) for ms in times], magic=2))
            answer = result(await client.call(produce("t", data, partition=partition), 7))
            assert answer.error_code == 0


async def test_only_the_edges_of_a_window_are_searched(client: Wire, searches: list[str]) -> None:
    await fill(client)
    found = await read(client, WINDOW, partition_max_bytes=FETCH_BYTES)
    assert [one.offset for one in found] == list(range(FIRST, BEHIND))
    whole_bytes = (END - BEGIN) * MESSAGES * 100
    assert len(searches) <= 5 < whole_bytes // FETCH_BYTES


async def test_an_answer_at_once_says_where_the_window_ends(
    client: Wire, searches: list[str]
) -> None:
    await fill(client)
    await read(client, WINDOW, partition_max_bytes=FETCH_BYTES)
    searches.clear()
    watermarks = set()
    for position in range(FIRST + MESSAGES, BEHIND - 5 * MESSAGES, MESSAGES):
        wanted = fetch(WINDOW, (0, position), partition_max_bytes=FETCH_BYTES)
        watermarks.add(result(await client.call(wanted, 10)).high_watermark)
    assert not searches
    assert watermarks == {await latest(client, WINDOW)} == {BEHIND}


@pytest.mark.parametrize("position", [0, FIRST - 6, FIRST, FIRST + 3])
async def test_a_reader_that_goes_back_gets_the_messages_of_the_window(
    client: Wire, position: int
) -> None:
    await fill(client)
    await read(client, WINDOW, partition_max_bytes=FETCH_BYTES)
    wanted = fetch(WINDOW, (0, FIRST + 2 * MESSAGES), partition_max_bytes=FETCH_BYTES)
    assert result(await client.call(wanted, 10)).records
    found = await read(client, WINDOW, position, partition_max_bytes=FETCH_BYTES)
    assert [one.offset for one in found] == list(range(max(position, FIRST), BEHIND))


async def test_a_late_message_moves_the_end_of_the_next_answer(
    client: Wire, searches: list[str]
) -> None:
    await fill(client)
    await read(client, WINDOW, partition_max_bytes=FETCH_BYTES)
    late = bytes(build_set([NewRecord(b"late", None, AT_14 + 20 * MINUTE_MS)], magic=2))
    offset = result(await client.call(produce("t", late), 7)).base_offset
    wanted = fetch(WINDOW, (0, FIRST + MESSAGES), partition_max_bytes=FETCH_BYTES)
    answer = result(await client.call(wanted, 10))
    assert answer.records
    assert answer.high_watermark == offset + 1


async def test_below_a_log_start_that_moved(client: Wire) -> None:
    await fill(client)
    await read(client, WINDOW, partition_max_bytes=FETCH_BYTES)
    start = 20 * MESSAGES
    trimmed = DeleteRecordsPartition(partition=0, offset=start)
    topics = [DeleteRecordsTopic(name="t", partitions=[trimmed])]
    await client.call(DeleteRecordsRequest(topics=topics, timeout_ms=1_000), 1)
    wanted = fetch(WINDOW, (0, FIRST + MESSAGES), partition_max_bytes=FETCH_BYTES)
    assert result(await client.call(wanted, 10)).error_code == 1
    found = await read(client, WINDOW, start, partition_max_bytes=FETCH_BYTES)
    assert [one.offset for one in found] == list(range(start, BEHIND))


async def test_a_fetch_of_several_partitions_is_answered_at_once(
    client: Wire, searches: list[str]
) -> None:
    """Each has its own room, and the answer has no more than it may."""
    await fill(client, partitions=3)
    for partition in range(3):
        await read(client, WINDOW, partition=partition, partition_max_bytes=FETCH_BYTES)
    searches.clear()
    wanted = [(partition, FIRST + MESSAGES) for partition in range(3)]
    for max_bytes, answered in ((1 << 20, 3), (FETCH_BYTES * 3 // 2, 2), (FETCH_BYTES, 1)):
        request = fetch(WINDOW, *wanted, partition_max_bytes=FETCH_BYTES, max_bytes=max_bytes)
        parts = results(await client.call(request, 10))
        assert [part.partition for part in parts] == [0, 1, 2]
        for part in parts[:answered]:
            assert walk(bytes(part.records), 0, len(part.records)).last_offset > FIRST + MESSAGES
            assert part.high_watermark == BEHIND
        for part in parts[answered:]:
            assert not part.records
            assert part.high_watermark == SETS * MESSAGES
    assert not searches
