"""Lag of committed positions, and when they last moved.

The time of the first unread message is looked up in turn with client requests, and cached until the
position moves. The reading pace is recorded when positions are committed, so that appends pay
nothing for it.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from ...clock import Clock
from ...protocol.api.framing import ProtocolError
from ...protocol.consumer_protocol import read_assignment
from ...protocol.errors import HorologError
from ...protocol.lag import Lag, Pace, lag_seconds
from ...protocol.records.layout import NO_TIMESTAMP, TimestampType
from ...protocol.records.messages.sets import records
from ...storage.directory.position_records import StoredPosition
from ...storage.directory.position_table import PositionReading
from ...storage.log.log import Log
from ...storage.read import reader
from ...values import value_class
from ..logs import Logs
from ..work import Turns, Work

MAX_FOLLOWED: Final = 1000
"""Positions whose lag is a metric and whose pace is known: those committed last. Each takes about 2
KiB of memory, and four lines of each scrape."""

MAX_READ_ASSIGNMENT_BYTES: Final = 256 * 1024
"""Largest assignment that is read; it has 65,000 partitions. A member with a larger one counts as
having all partitions."""

MAX_TIMES: Final = 4 * MAX_FOLLOWED
"""Number of cached message times: some 200 bytes each."""

Key = tuple[str, str, int]
"""Name, topic and partition of a position."""


@value_class
class _FirstTime:
    """Time of the message at an offset."""

    log: Log
    time_ms: int | None
    estimated: bool


@value_class
class FollowedPosition:
    """What metrics say of a position."""

    lag: Lag
    moved_seconds: float
    """How long ago the position last moved."""
    assigned: bool
    """Whether a member of the group of its name has its partition."""


Assignments = Callable[[str], Iterable[bytes]]
"""Returns the assignments of the members of a group."""


class Lags:
    """Computes the lag of any position, and follows those committed last."""

    def __init__(
        self,
        logs: Logs,
        positions: PositionReading,
        work: Work,
        clock: Clock,
        assignments: Assignments,
    ) -> None:
        self._logs = logs
        self._assignments = assignments
        self._positions = positions
        self._work = work
        self._clock = clock
        self._paces: OrderedDict[Key, Pace] = OrderedDict()
        self._times: OrderedDict[tuple[str, int, int], _FirstTime] = OrderedDict()
        self._stored_are_followed = False
        self.followed: dict[Key, FollowedPosition] = {}
        """The followed positions at the last `refresh`."""

    @property
    def left_out(self) -> int:
        """Number of positions that are not followed because there are too many."""
        return max(len(self._positions) - len(self._paces), 0)

    def committed(self, name: str, position: StoredPosition) -> None:
        """Record the pace of a position that was committed. Windows are not followed, not even
        those of a topic that is gone by now."""
        if self._logs.is_window(position.topic):
            return
        pace = self._follow((name, position.topic, position.partition))
        with suppress(HorologError, OSError):
            log = self._logs.find(position.topic, position.partition)
            pace.note(self._clock.monotonic(), position.offset, log.high_watermark)

    async def of(self, topic: str, partition: int, offset: int, name: str = "") -> Lag:
        """Return the lag of a position. Its pace is included if it is a followed position of
        `name`.

        Raises `UnknownTopicOrPartition`, and errors of opening the log.
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
        """Update all followed positions."""
        await self._follow_stored()
        found: dict[Key, FollowedPosition] = {}
        turns = self._work.turns()
        assigned = await self._assigned(turns)
        for key in list(self._paces):
            position = self._positions.get(*key)
            if position is None:
                self._paces.pop(key, None)
                continue
            with suppress(HorologError, OSError):
                lag = await self.of(*key[1:], position.offset, key[0])
                moved_ms = self._clock.now_ms() - position.moved_at_ms
                found[key] = FollowedPosition(lag, max(moved_ms, 0) / 1000, key in assigned)
            await turns.give_way()
        self.followed = found

    async def _assigned(self, turns: Turns) -> set[Key]:
        """Return the followed positions whose partition a member of the group has."""
        by_name: dict[str, set[Key]] = {}
        for key in self._paces:
            by_name.setdefault(key[0], set()).add(key)
        found: set[Key] = set()
        for name, keys in by_name.items():
            for assignment in list(self._assignments(name)):
                found |= _keys_in(assignment, name, keys)
                await turns.give_way()
        return found

    async def _follow_stored(self) -> None:
        """Follow the positions that were committed last before the broker started. Done once."""
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
            # Decompressing a set may take long.
            data = reader.read(log, offset, 0, whole_first=True).read()
            limit = log.settings.max_decompressed_bytes
            timed = await self._work.in_conversion_thread(_first_record_time(data, offset, limit))
        except (HorologError, OSError):
            return unknown
        if timed is None or timed[0] == NO_TIMESTAMP:
            return unknown
        return _FirstTime(log, timed[0], timed[1] is not TimestampType.LOG_APPEND_TIME)


def _keys_in(assignment: bytes, name: str, keys: Collection[Key]) -> set[Key]:
    """Return the `keys` whose partitions are in an assignment; all of them if it cannot be read."""
    if len(assignment) > MAX_READ_ASSIGNMENT_BYTES:
        return set(keys)
    found: set[Key] = set()
    try:
        found.update((name, *place) for place in read_assignment(assignment))
    except ProtocolError:
        return set(keys)
    return found.intersection(keys)


def _first_record_time(
    data: bytes, offset: int, max_bytes: int
) -> Callable[[], tuple[int, TimestampType | None] | None]:
    """Return a function that finds time and type of the first message of a set from `offset` on."""

    def call() -> tuple[int, TimestampType | None] | None:
        for record in records(data, max_decompressed_bytes=max_bytes, from_offset=offset):
            return record.timestamp_ms, record.timestamp_type
        return None

    return call
