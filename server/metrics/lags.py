"""How far named positions are behind their logs.

The time of the first message that was not consumed is looked up in turns with the requests, and
kept until the position moves. Paces are noted when positions are committed, so that appends pay
nothing for them.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from ...clock import Clock
from ...protocol.errors import HorologError
from ...protocol.lag import Lag, Pace, lag_seconds
from ...protocol.records.layout import NO_TIMESTAMP, TimestampType
from ...protocol.records.messages.message import records
from ...storage.directory.position_reading import PositionReading
from ...storage.directory.position_records import StoredPosition
from ...storage.log.log import Log
from ...storage.read import reader
from ...values import value_class
from ..logs import Logs
from ..work import Work

MAX_FOLLOWED: Final = 1000
"""Positions whose lag is a metric and whose pace is known: those committed last. Each takes about
2 KiB here, and two lines of every scrape."""

MAX_TIMES: Final = 4 * MAX_FOLLOWED
"""Times of messages that are kept: some 200 bytes each."""

Key = tuple[str, str, int]
"""Name, topic and partition of a position."""


@value_class
class _FirstTime:
    """When the message at an offset came."""

    log: Log
    time_ms: int | None
    estimated: bool


class Lags:
    """Answers for any position; follows the ones committed last."""

    def __init__(self, logs: Logs, positions: PositionReading, work: Work, clock: Clock) -> None:
        self._logs = logs
        self._positions = positions
        self._work = work
        self._clock = clock
        self._paces: OrderedDict[Key, Pace] = OrderedDict()
        self._times: OrderedDict[tuple[str, int, int], _FirstTime] = OrderedDict()
        self._stored_are_followed = False
        self.followed: dict[Key, Lag] = {}
        """As of the last `refresh`."""

    @property
    def left_out(self) -> int:
        """How many positions are not followed because there are too many."""
        return max(len(self._positions) - len(self._paces), 0)

    def committed(self, name: str, position: StoredPosition) -> None:
        """A position was stored: note its pace."""
        pace = self._follow((name, position.topic, position.partition))
        with suppress(HorologError, OSError):
            log = self._logs.find(position.topic, position.partition)
            pace.note(self._clock.monotonic(), position.offset, log.high_watermark)

    async def of(self, topic: str, partition: int, offset: int, name: str = "") -> Lag:
        """The lag of a position, with its pace if it is one of `name` that is followed.

        Raises `UnknownTopicOrPartition`, and what opening the log raises.
        """
        log = self._logs.find(topic, partition)
        if not log.prepared:
            await self._logs.prepare([log])
            log = self._logs.find(topic, partition)
        first = max(offset, log.log_start_offset)
        end = log.high_watermark
        if first >= end:
            return Lag(0, 0.0, catch_up_seconds=0.0)
        found = await self._first_time(log, first)
        pace = self._paces.get((name, topic, partition)) or Pace()
        return Lag(
            end - first,
            lag_seconds(self._clock.now_ms(), found.time_ms),
            found.estimated,
            pace.catch_up_seconds(self._clock.monotonic(), first, end),
        )

    async def refresh(self) -> None:
        """Look at all followed positions again."""
        await self._follow_stored()
        found: dict[Key, Lag] = {}
        turns = self._work.turns()
        for key in list(self._paces):
            position = self._positions.get(*key)
            if position is None:
                self._paces.pop(key, None)
                continue
            with suppress(HorologError, OSError):
                found[key] = await self.of(*key[1:], position.offset, key[0])
            await turns.give_way()
        self.followed = found

    async def _follow_stored(self) -> None:
        """Once: follow what was committed last before the broker started."""
        if self._stored_are_followed:
            return
        self._stored_are_followed = True
        newest = await self._work.in_storage_thread(partial(self._positions.newest, MAX_FOLLOWED))
        for key in newest:
            if len(self._paces) >= MAX_FOLLOWED:
                break
            if key not in self._paces and not self._logs.is_window(key[1]):
                self._follow(key)
                self._paces.move_to_end(key, last=False)

    def _follow(self, key: Key) -> Pace:
        pace = self._paces.get(key)
        if pace is None:
            pace = self._paces[key] = Pace()
        self._paces.move_to_end(key)
        if len(self._paces) > MAX_FOLLOWED:
            self._paces.popitem(last=False)
        return pace

    async def _first_time(self, log: Log, offset: int) -> _FirstTime:
        key = (log.topic, log.partition, offset)
        known = self._times.get(key)
        if known is None or known.log is not log:
            known = self._times[key] = await self._look_up(log, offset)
            if len(self._times) > MAX_TIMES:
                self._times.popitem(last=False)
        self._times.move_to_end(key)
        return known

    async def _look_up(self, log: Log, offset: int) -> _FirstTime:
        unknown = _FirstTime(log, None, False)
        turns = self._work.turns()
        with suppress(OSError):
            while not reader.append_times_loaded(log, offset):
                await turns.give_way()
            append_ms = reader.append_time_ms(log, offset)
            if append_ms != NO_TIMESTAMP:
                return _FirstTime(log, append_ms, False)
        try:
            # Opening a compressed set may take long.
            data = reader.read(log, offset, 0, whole_first=True).read()
            limit = log.settings.max_decompressed_bytes
            timed = await self._work.in_conversion_thread(_first_record_time(data, offset, limit))
        except (HorologError, OSError):
            return unknown
        if timed is None or timed[0] == NO_TIMESTAMP:
            return unknown
        return _FirstTime(log, timed[0], timed[1] is not TimestampType.LOG_APPEND_TIME)


def _first_record_time(
    data: bytes, offset: int, max_bytes: int
) -> Callable[[], tuple[int, TimestampType | None] | None]:
    """A call that gives time and type of the first message from `offset` on in a set."""

    def call() -> tuple[int, TimestampType | None] | None:
        for record in records(data, max_decompressed_bytes=max_bytes, from_offset=offset):
            return record.timestamp_ms, record.timestamp_type
        return None

    return call
