"""A log carried to another broker keeps its times: decision 30, FO-1 to FO-11, V-8, tc133.

The messages are sent to one broker over ten days. Their stored bytes are fetched over the wire and
appended on another, all in one moment of its clock. There everything goes on as if nothing had
happened: searches, rolling and retention go by the times of the messages.
"""

import os
from pathlib import Path

import pytest

from horolog.protocol.records.messages.sets import entries
from horolog.testing.broker import running_broker, synced
from horolog.testing.clock import ManualClock
from horolog.testing.directories import copy_as_killed
from horolog.testing.requests import message_set, produce, result

from .carrying import (
    DAY_MS,
    EARLIEST,
    HOUR_MS,
    LARGEST,
    LATEST,
    SEGMENTS,
    TOPIC,
    Side,
    carry,
    first_at_or_after,
    targets_of,
)
from .conftest import Filled

MISFIT_SETTINGS = {
    "message_timestamp_type": "LogAppendTime",
    "max_message_time_difference_ms": 1,
    "message_format_version": "0.9.0",
    "compression_type": "lz4",
}
"""What would change or refuse every set that a producer sent."""

chunkings = pytest.mark.parametrize(
    "chunk_bytes",
    [
        pytest.param(1, id="entry-by-entry"),
        pytest.param(100, id="100-bytes"),
        pytest.param(777, id="777-bytes"),
        pytest.param(1 << 20, id="segment-by-segment"),
    ],
)


async def assert_equal_answers(source: Side, target: Side) -> None:
    """Searches by time answer on both as reading everything does."""
    stored = await source.records()
    targets = targets_of(stored)
    assert len(targets) > 100
    expected = [first_at_or_after(stored, time_ms) for time_ms in targets]
    assert await source.found(*targets) == expected
    assert await target.found(*targets) == expected
    ends = (LATEST, EARLIEST, LARGEST)
    assert await target.found(*ends) == await source.found(*ends)


@chunkings
@pytest.mark.parametrize(
    "settings",
    [pytest.param({}, id="same-settings"), pytest.param(MISFIT_SETTINGS, id="FO-7-others")],
)
async def test_bytes_and_answers_are_the_same_v8_fo1_fo7_fo10(
    source: Side, target: Side, chunk_bytes: int, settings: dict[str, object]
) -> None:
    await target.create(retention_ms=-1, **(SEGMENTS | settings))
    chunks = await carry(source, target, chunk_bytes)
    assert chunks > 1
    assert await target.stored() == await source.stored()
    if settings:
        await target.alter(message_format_version="producer")  # 0.9.0 refuses searches by time
    await assert_equal_answers(source, target)


def assert_rolls_by_time(target: Side, span_ms: int) -> None:
    """No segment spans more message time than it may, though all were written at once."""
    for segment in target.log.segments:
        if segment.first_timestamp_ms >= 0:
            assert segment.largest_timestamp_ms - segment.first_timestamp_ms <= span_ms


async def test_segments_are_those_of_the_source_when_sets_come_one_by_one_fo6(
    source: Side, target: Side, filled: Filled
) -> None:
    await target.create(retention_ms=-1, **SEGMENTS)
    await carry(source, target, filled.begin)
    assert target.bases() == source.bases()
    assert target.broker.figures.topic(TOPIC).rolls.keys() == {"leader"}


async def test_rolling_goes_by_the_times_received_fo6(
    source: Side, target: Side, filled: Filled
) -> None:
    """Ten days arrive in a moment, and still no segment holds more than its day."""
    await target.create(retention_ms=-1, segment_ms=DAY_MS)
    await carry(source, target, filled.begin)
    assert target.broker.figures.topic(TOPIC).rolls == {"leader": target.log.segment_count - 1}
    assert target.log.segment_count > 8
    assert_rolls_by_time(target, DAY_MS)


async def test_the_same_data_expires_on_both_tc133_fo11(
    source: Side, target: Side, filled: Filled, clock: ManualClock
) -> None:
    """The motive: retention does not begin anew where the log is carried to."""
    await target.create(retention_ms=-1, **SEGMENTS)
    await carry(source, target, filled.begin)
    for side in (source, target):
        await side.alter(retention_ms=5 * DAY_MS)
        await side.retain()
    assert 0 < target.log.log_start_offset < target.log.log_end_offset
    starts = []
    while target.log.log_start_offset < target.log.log_end_offset:
        assert target.log.log_start_offset == source.log.log_start_offset
        assert target.bases() == source.bases()
        assert await target.stored() == await source.stored()
        starts.append(target.log.log_start_offset)
        clock.advance(3 * HOUR_MS)
        for side in (source, target):
            await side.retain()
    assert len(set(starts)) > 5
    assert source.log.log_start_offset == source.log.log_end_offset


@chunkings
async def test_nothing_young_expires_however_it_was_chunked(
    source: Side, target: Side, clock: ManualClock, chunk_bytes: int
) -> None:
    """Other chunks make other segments; still only what is old goes, and all of it in the end."""
    await target.create(retention_ms=-1, **SEGMENTS)
    await carry(source, target, chunk_bytes)
    stored = await source.records()
    await target.alter(retention_ms=5 * DAY_MS)
    while True:
        await target.retain()
        start = target.log.log_start_offset
        oldest_ms = clock.now_ms() - 5 * DAY_MS
        assert all(record.timestamp_ms < oldest_ms for record in stored if record.offset < start)
        if start == target.log.log_end_offset:
            break
        first = target.log.segments[0]
        assert first.largest_timestamp_ms >= oldest_ms or first.largest_timestamp_ms < 0
        clock.advance(6 * HOUR_MS)
    assert clock.now_ms() - max(record.timestamp_ms for record in stored) < 6 * DAY_MS


@pytest.mark.parametrize("again", ["clean", "killed"])
async def test_it_stays_so_after_a_restart(
    source: Side, tmp_path: Path, clock: ManualClock, again: str
) -> None:
    path = tmp_path / "target"
    async with (
        running_broker(path, clock, http_listen="off", retention_ms=-1) as broker,
        Side.connected(broker) as target,
    ):
        await target.create(**SEGMENTS)
        await carry(source, target, 777)
        bases = target.bases()
        if again == "killed":
            copy_as_killed(path, tmp_path / "killed")
    if again == "killed":
        path = tmp_path / "killed"
    async with (
        running_broker(path, clock, http_listen="off", retention_ms=-1) as broker,
        Side.connected(broker) as target,
    ):
        assert target.bases() == bases
        assert await target.stored() == await source.stored()
        await assert_equal_answers(source, target)


async def test_producers_go_on_where_the_log_was_carried_to(
    source: Side, target: Side, clock: ManualClock
) -> None:
    """Append times never fall behind those that another broker gave, whatever this clock shows."""
    await source.alter(message_timestamp_type="LogAppendTime")
    await source.send(message_set(5))
    stamp_ms = (await source.entries())[-1].timestamp_ms
    await target.create(retention_ms=-1, message_timestamp_type="LogAppendTime", **SEGMENTS)
    await carry(source, target, 777)
    clock.step(-3 * DAY_MS)
    got = result(await target.client.call(produce(TOPIC, message_set(5))))
    assert got.base_offset == source.log.log_end_offset
    assert got.log_append_time_ms == stamp_ms


async def test_what_came_since_is_carried_later(source: Side, target: Side) -> None:
    await target.create(retention_ms=-1, **SEGMENTS)
    await carry(source, target, 777)
    for number in range(30):
        await source.send(message_set(number, -1, 7 * DAY_MS))
        await carry(source, target, 777)
    assert await target.stored() == await source.stored()
    await assert_equal_answers(source, target)


async def test_a_log_whose_start_is_gone_is_carried_from_there_fo2(
    source: Side, target: Side
) -> None:
    """The offsets below are a gap at the target's beginning, and searches know nothing of them."""
    await source.alter(retention_ms=5 * DAY_MS)
    await source.retain()
    start = source.log.log_start_offset
    assert start > 0
    await target.create(retention_ms=-1, **SEGMENTS)
    target.log.truncate_fully(start)
    await carry(source, target, 777)
    assert target.log.log_start_offset == start
    assert await target.stored() == await source.stored()
    await assert_equal_answers(source, target)


@pytest.mark.parametrize("source_stop", ["clean", "running"])
@pytest.mark.parametrize("with_indexes", [True, False], ids=["indexes", "log-files-only"])
async def test_a_folder_copied_by_hand(
    source: Side, tmp_path: Path, clock: ManualClock, source_stop: str, with_indexes: bool
) -> None:
    """`cp -r` gives every file the time of the copy; the messages keep theirs."""
    folder = source.broker.settings.data_dir / f"{TOPIC}-0"
    if source_stop == "clean":
        await synced(source.broker, source.log)
    copy = tmp_path / "target" / f"{TOPIC}-0"
    copy_as_killed(folder, copy)
    for path in copy.iterdir():
        if path.suffix != ".log" and not with_indexes:
            path.unlink()
        else:
            os.utime(path, (2_000_000_000, 2_000_000_000))
    async with (
        running_broker(tmp_path / "target", clock, http_listen="off", retention_ms=-1) as broker,
        Side.connected(broker) as target,
    ):
        assert target.bases() == source.bases()
        assert await target.stored() == await source.stored()
        await assert_equal_answers(source, target)
        for side in (source, target):
            await side.alter(retention_ms=5 * DAY_MS)
            await side.retain()
        assert 0 < source.log.log_start_offset == target.log.log_start_offset
        assert await target.stored() == await source.stored()
        last = list(entries(await target.stored()))[-1].offset
        got = result(await target.client.call(produce(TOPIC, message_set(5))))
        assert got.base_offset == last + 1
