"""What a connection remembers of windows: a reader comes to the message at the end of a long log,
whatever other clients read."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.server.broker import Broker
from horolog.server.window_memory import WINDOWS_KEPT, WindowMemory
from horolog.storage.read.window_sets import LogWindow
from horolog.storage.read.windows import ReadWindow
from horolog.testing.logs import LogFolder
from horolog.testing.requests import fetch, list_offsets, produce, result
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

AT_14 = 1_479_132_000_000
HOUR_MS = 3_600_000
SETS, MESSAGES = 40, 400
POLLS_MAX = 400
WINDOW_MS = AT_14 + 2_150_001
"""No message has an odd time but the last one: each block may have one, as far as maps tell."""
WINDOW = f"t..{WINDOW_MS}..{WINDOW_MS + 1}"


@pytest.fixture
async def victim(broker: Broker) -> AsyncIterator[Wire]:
    async with wire(str(broker.addresses.kafka), kafka) as connected:
        yield connected


@pytest.fixture
async def log_end(client: Wire) -> int:
    """The end of a log of 8 MB in which nothing but its last message is in the window."""
    random = Random(1)
    value = random.randbytes(500)
    for _ in range(SETS):
        times = [AT_14 + 2 * random.randrange(HOUR_MS // 2) for _ in range(MESSAGES)]
        data = bytes(build_set([NewRecord(value, None, ms) for ms in times], magic=2))
        assert result(await client.call(produce("t", data), 7)).error_code == 0
    last = bytes(build_set([NewRecord(b"last", None, WINDOW_MS)], magic=2))
    answer = result(await client.call(produce("t", last), 7))
    return int(answer.base_offset) + 1


async def poll(client: Wire, topic: str, offset: int = 0) -> int:
    """The high watermark of a fetch that has time for one step; -1 if it found messages."""
    answer = result(await client.call(fetch(topic, (0, offset), max_wait_ms=1, min_bytes=1), 10))
    assert answer.error_code == 0, answer
    return -1 if answer.records else int(answer.high_watermark)


async def test_others_that_read_a_hundred_windows_in_turn(
    client: Wire, victim: Wire, log_end: int
) -> None:
    others = [f"t..{AT_14 + 2 * number + 1}..{AT_14 + 2 * number + 2}" for number in range(100)]
    for _ in range(POLLS_MAX):
        found = await poll(victim, WINDOW)
        if found < 0:
            break
        assert found == log_end
        for name in others:
            client.send_together(fetch(name, (0, 0), max_wait_ms=1, min_bytes=1))
        for _ in others:
            await client.receive()
    assert found < 0, f"nothing after {POLLS_MAX} polls"
    answer = result(await victim.call(list_offsets(WINDOW, (0, -1)), 7))
    assert answer.offset == log_end


async def test_others_that_read_the_window_at_many_offsets(
    client: Wire, victim: Wire, log_end: int
) -> None:
    for _ in range(POLLS_MAX):
        found = await poll(victim, WINDOW)
        if found < 0:
            break
        for number in range(1, 21):
            await poll(client, WINDOW, number * 100)
    assert found < 0, f"nothing after {POLLS_MAX} polls"


async def test_little_is_kept_and_goes_with_the_connection(broker: Broker, log_end: int) -> None:
    log = broker.services.logs.find("t", 0)
    async with wire(str(broker.addresses.kafka), kafka) as client:
        for number in range(200):
            await client.call(list_offsets(f"t..{AT_14}..{AT_14 + 1 + number}", (0, -1)), 7)
        assert log.window_knowledge is not None
        assert len(log.window_knowledge) == WINDOWS_KEPT
    knowledge = log.window_knowledge
    async with wire(str(broker.addresses.kafka), kafka) as client:
        await client.call(list_offsets(WINDOW, (0, -1)), 7)
    await until(lambda: len(knowledge) <= 1)


@pytest.mark.parametrize("windows", [WINDOWS_KEPT, 100])
def test_more_windows_in_turn_than_are_kept(tmp_path: Path, windows: int) -> None:
    """As many as are kept come to the end; with least recently used ones given up, none would."""
    folder = LogFolder(tmp_path / "t-0")
    log, memory = folder.open(), WindowMemory()
    end, step = 10_000, 100
    reached = set[int]()
    for _ in range(2 * end // step):
        for number in range(windows):
            window = LogWindow(ReadWindow(number, number), by_append=False)
            shared = memory.hold(log, window, committed=False)
            position = memory.behind_empty(shared, 0)
            if position >= end:
                reached.add(number)
            memory.note_empty(shared, 0, min(position + step, end))
    assert len(reached) == WINDOWS_KEPT == len(memory)
    folder.let_go()


def test_windows_that_are_not_read_any_more_make_room(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path / "t-0")
    log, memory = folder.open(), WindowMemory()

    def read(number: int, searched: int) -> int:
        window = LogWindow(ReadWindow(number, number), by_append=False)
        shared = memory.hold(log, window, committed=False)
        position = memory.behind_empty(shared, 0)
        memory.note_empty(shared, 0, max(searched, position))
        return position

    for number in range(WINDOWS_KEPT):
        read(number, 1_000_000)
    for _ in range(2_000):
        read(WINDOWS_KEPT, 1)
        read(WINDOWS_KEPT + 1, 1)
    assert read(WINDOWS_KEPT, 2) == read(WINDOWS_KEPT + 1, 2) == 1
    assert len(memory) == WINDOWS_KEPT
    folder.let_go()


def test_what_was_found_is_forgotten_when_the_log_is_cut_off(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path / "t-0")
    log, memory = folder.open(), WindowMemory()
    folder.append(1, 2, 3)
    window = LogWindow(ReadWindow(9, 9), by_append=False)
    shared = memory.hold(log, window, committed=False)
    memory.note_empty(shared, 0, 3)
    assert memory.behind_empty(shared, 0) == 3
    log.truncate(1)
    again = memory.hold(log, window, committed=False)
    assert again is not shared
    assert memory.behind_empty(again, 0) == 0
    folder.let_go()
