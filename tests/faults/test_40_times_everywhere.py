"""Fault 40: each message ten years earlier or later than the one before.

Segments stay few, open files stay few, retention does what its rule says, and what it says of each
segment explains that.
"""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from horolog.protocol.api.log.describe_log import DescribeLogRequest, DescribeLogTopic
from horolog.server.broker import Broker
from horolog.storage.log.log import Log
from horolog.testing.broker import running_broker, synced
from horolog.testing.clock import ManualClock
from horolog.testing.requests import create_topic, list_offsets, message_set, produce, result
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()
DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
TEN_YEARS_MS = 10 * YEAR_MS
MESSAGES = 600
OPEN_FILES = 64


@dataclass
class Place:
    """A broker with one topic, and a client of it."""

    broker: Broker
    client: Wire
    clock: ManualClock

    @property
    def log(self) -> Log:
        return self.broker.directory.log("a", 0)

    async def fill(self, times: Sequence[int], **settings: int) -> None:
        await self.client.call(create_topic("a", retention_ms=-1, **settings))
        for timestamp_ms in times:
            sent = produce("a", message_set(timestamp_ms))
            assert result(await self.client.call(sent)).error_code == 0

    def keep(self, **retention: int) -> None:
        """Let the topic keep so much. `fill` keeps everything, or a roll would delete at once."""
        overrides = dict(self.broker.directory.topics()["a"].overrides)
        given = {name.replace("_", "."): str(value) for name, value in retention.items()}
        self.broker.directory.alter_topic("a", overrides | given)

    async def retain(self) -> None:
        await self.broker.maintenance.tasks["retention"].run_now()

    async def verdicts(self) -> list[tuple[str, str]]:
        request = DescribeLogRequest(topics=[DescribeLogTopic(name="a", partitions=[0])])
        described = result(await self.client.call(request))
        return [(segment.verdict, segment.reason) for segment in described.segments]

    async def find(self, target_ms: int) -> int:
        got = result(await self.client.call(list_offsets("a", (0, target_ms)), 1))
        offset: int = got.offset
        return offset


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    clock = ManualClock()
    async with (
        running_broker(tmp_path, clock, http_listen="off", max_open_files=OPEN_FILES) as broker,
        wire(broker.addresses.native) as client,
    ):
        yield Place(broker, client, clock)


def alternating(_: Random) -> list[int]:
    return [NOW + (TEN_YEARS_MS if number % 2 else -TEN_YEARS_MS) for number in range(MESSAGES)]


def at_random(random: Random) -> list[int]:
    return [NOW + random.randrange(-TEN_YEARS_MS, TEN_YEARS_MS) for _ in range(MESSAGES)]


def falling(_: Random) -> list[int]:
    """From in ten years back to ten years ago."""
    step_ms = 2 * TEN_YEARS_MS // MESSAGES
    return [NOW + TEN_YEARS_MS - number * step_ms for number in range(MESSAGES)]


def open_files(broker: Broker) -> int:
    """Those of its data directory: others of this process come and go."""
    own, count = str(broker.settings.data_dir), 0
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{descriptor}").startswith(own)
    return count


@pytest.mark.parametrize(
    ("times_of", "segments_max"),
    [
        pytest.param(alternating, 2, id="alternating"),
        pytest.param(at_random, 20, id="at-random"),
        pytest.param(falling, 1, id="falling"),
    ],
)
async def test_40_rolls_and_open_files_are_bounded(
    place: Place,
    times_of: Callable[[Random], list[int]],
    segments_max: int,
    request: pytest.FixtureRequest,
) -> None:
    """A segment rolls for a message that is a week newer than its first, never for an old one."""
    times = times_of(Random(f"{request.config.getoption('--hypothesis-seed')}"))
    files = open_files(place.broker)
    await place.fill(times, segment_ms=7 * DAY_MS)
    assert place.log.segment_count <= segments_max
    assert open_files(place.broker) <= files + 3 * segments_max + 5
    for target_ms in Random(1).sample(times, 50):
        first = next(offset for offset, at_ms in enumerate(times) if at_ms >= target_ms)
        assert await place.find(target_ms) == first
    assert await place.find(max(times) + 1) == -1


async def test_40_rising_times_make_a_segment_each_and_no_more_open_files(place: Place) -> None:
    """The worst there is: by the rule each message begins a segment. Descriptors do not follow."""
    files = open_files(place.broker)
    times = [NOW - TEN_YEARS_MS + number * 8 * DAY_MS for number in range(300)]
    await place.fill(times, segment_ms=7 * DAY_MS)
    await synced(place.broker, place.log)
    assert not place.log.unflushed_messages
    assert place.log.segment_count == 300
    assert place.broker.figures.topic("a").rolls == {"time": 299}
    for offset, target_ms in enumerate(times):
        assert await place.find(target_ms) == offset
    assert open_files(place.broker) <= files + OPEN_FILES + 5


async def test_40_retention_by_time_goes_by_the_newest_of_each_segment(place: Place) -> None:
    """One message from the future keeps what is beside and behind it; the reasons say so."""
    times = [NOW - TEN_YEARS_MS + number for number in range(20)]
    times += [NOW - TEN_YEARS_MS + 20, NOW + TEN_YEARS_MS]
    times += [NOW - TEN_YEARS_MS] * 30
    await place.fill(times, segment_bytes=39 * 5, segment_ms=30 * YEAR_MS)
    place.keep(retention_ms=7 * DAY_MS)
    verdicts = await place.verdicts()
    assert [verdict for verdict, _ in verdicts] == ["expired"] * 4 + ["kept"] * 7
    assert "is more than retention.ms=604800000 before" in verdicts[0][1]
    assert "its newest message (2026-11-12" in verdicts[4][1]
    assert "keeps it: until 2026-11-19" in verdicts[4][1]
    assert "it is expired, but behind the segment at 20, which is kept" in verdicts[5][1]
    await place.retain()
    assert place.log.log_start_offset == 20
    place.clock.advance(TEN_YEARS_MS + 8 * DAY_MS)
    await place.retain()
    assert place.log.log_start_offset == place.log.log_end_offset == len(times)


async def test_40_retention_by_size_does_not_look_at_times(place: Place) -> None:
    times = alternating(Random(1))[:100]
    await place.fill(times, segment_bytes=39 * 5, segment_ms=30 * YEAR_MS)
    place.keep(retention_bytes=39 * 20)
    expired = [reason for verdict, reason in await place.verdicts() if verdict == "expired"]
    assert len(expired) == 16
    assert all("above retention.bytes=780" in reason for reason in expired)
    await place.retain()
    assert place.log.size_bytes == 39 * 20
    assert place.log.log_start_offset == 80


async def test_40_limits_of_times_refuse_what_nobody_wants(place: Place) -> None:
    """What keeps such messages out: a limit for each direction, and the text that names it."""
    await place.client.call(
        create_topic("a", message_timestamp_after_max_ms=DAY_MS, retention_ms=-1)
    )
    for number, timestamp_ms in enumerate(alternating(Random(1))[:20]):
        got = result(await place.client.call(produce("a", message_set(timestamp_ms))))
        assert got.error_code == (32 if number % 2 else 0)
        if number % 2:
            assert "message.timestamp.after.max.ms" in got.error_message
    assert place.log.log_end_offset == 10
    assert place.log.segment_count == 1
