"""Reading windows of logs for window topics: the messages from an offset on, where the last one
is, and what a fetch waits for. All work is in turns of the loop; what is large is opened in a
thread."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ...protocol.api.log.count_by_time import CountByTimeRequest
from ...protocol.api.log.fetch import FetchPartition
from ...protocol.api.log.list_offsets import BY_APPEND
from ...protocol.errors import OffsetOutOfRange
from ...protocol.lag import Lag
from ...protocol.records.batch import BatchHeader, read_header
from ...protocol.records.kernel import walk
from ...protocol.records.layout import BATCH_MAGIC, BATCH_OVERHEAD, MAGIC_AT, Buffer, Codec
from ...protocol.records.messages.downconversion import DamagedSlice, Steps, run
from ...protocol.records.selection import Selected, selection
from ...protocol.window_topics import WindowName
from ...storage.index.time_map import UnreadableTimes
from ...storage.log.log import Log
from ...storage.log.recent_appends import AwaitedTimes
from ...storage.read import reader
from ...storage.read.search import FoundMessage
from ...storage.read.slices import FileRange, Slice
from ...storage.read.window_sets import (
    LogWindow,
    WindowKnowledge,
    WindowSearch,
    WindowUnion,
    aborted_batches,
    pieces_back,
    stretches_back,
)
from ...storage.read.windows import ReadWindow, WindowPosition
from ...storage.segment.segment import Segment
from ...times import INT64_MAX
from ..network.file_sending import MIN_FILE_RANGE_BYTES
from ..parking import Partition
from ..window_memory import WindowMemory
from ..window_topics import log_window
from ..work import Turns
from .base import Services
from .counting import counted

_READ_BYTES: Final = 256 << 10
"""What is read at once to choose from: a few blocks of a time map."""

_LEAST_READ_BYTES: Final = 16 << 10


async def make_ready(services: Services, log: Log, window: LogWindow, segment: Segment) -> None:
    """Make the time map of a segment, or load its append times, before a window is looked for."""
    if not window.by_append:
        await services.time_maps.make(log, segment)
        return
    turns = services.work.turns()
    while not segment.append_times.load():
        await turns.give_way()


async def prepare(services: Services, log: Log, offset: int) -> None:
    """Have the log prepared, and it known where an offset and its high watermark are."""
    if not log.prepared:
        await services.logs.prepare([log])
        if not log.prepared:
            log.prepare()  # Raises what kept it from being prepared.
    turns = services.work.turns()
    while not reader.located(log, max(offset, log.log_start_offset)):
        await turns.give_way()


def stop_of(position: WindowPosition, end: int) -> int:
    """Where the stretch ends in which messages of a window may be. Of a segment whose time map
    could not be made that is all of it."""
    unready = position.unready
    return min(position.end_offset if unready is None else unready.next_offset, end)


async def latest_offset(
    services: Services,
    log: Log,
    window: LogWindow,
    known: WindowKnowledge,
    *,
    committed: bool = False,
) -> int:
    """The offset behind the last message of the window that readers see, or the log start."""
    latest = known_latest(log, known, committed=committed)
    if latest is not None:
        return latest
    end = log.last_stable_offset if committed else log.high_watermark
    begin = max(known.searched_offset, log.log_start_offset)
    found = await _find_last(services, log, window, begin, end, committed=committed)
    known.note_last(-1 if found is None else found.offset, end)
    return max(known.last_offset + 1, log.log_start_offset)


def known_latest(log: Log, known: WindowKnowledge, *, committed: bool) -> int | None:
    """As `latest_offset`; `None` if the log has to be searched for it."""
    end = log.last_stable_offset if committed else log.high_watermark
    if known.searched_offset < end:
        return None
    return max(known.last_offset + 1, log.log_start_offset)


async def _find_last(
    services: Services, log: Log, window: LogWindow, begin: int, end: int, *, committed: bool
) -> FoundMessage | None:
    turns = services.work.turns()
    for stretch in stretches_back(log, window, begin, end):
        await turns.give_way()
        if stretch is None or stretch.segment.dropped:
            continue
        if stretch.unready:
            await make_ready(services, log, window, stretch.segment)
            continue
        for first, stop in pieces_back(stretch.begin, stretch.end):
            if stretch.segment.dropped:
                break
            search = WindowSearch(log, window, stretch.segment, first, stop, committed=committed)
            found = await _in_thread(services, stretch.segment, search.last)
            if found is not None:
                return found
    return None


async def _in_thread(
    services: Services, segment: Segment, search: Callable[[], FoundMessage | None]
) -> FoundMessage | None:
    try:
        return await services.work.in_storage_thread(search)
    except OSError:
        if segment.dropped:
            return None  # Its messages are gone, and so is its file.
        raise
    except UnreadableTimes as error:
        raise segment.damage(error.position) from error


async def first_message(
    services: Services,
    log: Log,
    window: LogWindow,
    *,
    end: int,
    begin: int = 0,
    committed: bool = False,
) -> FoundMessage | None:
    """The first message of the window, in offset order, from `begin` on and below `end`."""
    turns = services.work.turns()
    offset = max(begin, log.log_start_offset)
    made: Segment | None = None
    while offset < end:
        await turns.give_way()
        offset = max(offset, log.log_start_offset)
        position = window.find(log, offset, end)
        if position.unready is not None and position.unready is not made:
            made = position.unready
            await make_ready(services, log, window, made)
            continue
        offset, stop = position.offset, stop_of(position, end)
        while offset < stop:
            segment = log.segment_list.holding(offset)
            upto = min(stop, offset + 65_536)
            search = WindowSearch(log, window, segment, offset, upto, committed=committed)
            found = await _in_thread(services, segment, search.first)
            if found is not None:
                return found
            offset = upto
    return None


async def largest_message(
    services: Services, log: Log, window: LogWindow, *, end: int, committed: bool
) -> FoundMessage | None:
    """The first message that has the largest time in the window, below `end`."""
    if window.by_append:
        begin = log.log_start_offset
        return await _find_last(services, log, window, begin, end, committed=committed)
    best: FoundMessage | None = None
    low, high = window.window
    while low <= high:
        # Half of the times that are left are ruled out each time.
        middle = low if best is None else low + (high - low) // 2
        later = LogWindow(ReadWindow(middle, high), by_append=False)
        found = await first_message(services, log, later, end=end, committed=committed)
        if found is not None:
            best, low = found, found.timestamp_ms + 1
        elif best is None:
            return None
        else:
            high = middle - 1
    if best is None:
        return None
    exact = ReadWindow(best.timestamp_ms, best.timestamp_ms)
    of_that_time = LogWindow(exact, by_append=False)
    return await first_message(services, log, of_that_time, end=end, committed=committed)


async def window_lag(services: Services, window: WindowName, partition: int, offset: int) -> Lag:
    """How far a position in a window is behind its end: in messages of the window, and by the time
    of the first of them. Raises as `Lags.of`."""
    log = services.logs.find(window.base, partition)
    await prepare(services, log, offset)
    begin, end = max(offset, log.log_start_offset), log.high_watermark
    until_ms = INT64_MAX if window.until_ms is None else window.until_ms
    messages, at = 0, begin
    while at < end:
        request = CountByTimeRequest(
            topic=window.base,
            partition=partition,
            from_ms=window.from_ms,
            until_ms=until_ms,
            every_ms=0,
            by=BY_APPEND if window.by_append else "",
            from_offset=at,
            end_offset=end,
        )
        counts = await counted(services, request, no_end=window.until_ms is None)
        messages += sum(counts.counts)
        at = counts.next_offset if counts.next_offset > at else end
    first = await first_message(services, log, log_window(window), begin=begin, end=end)
    if not messages or first is None:
        return Lag(0, 0.0, catch_up_seconds=0.0)
    behind = await services.lags.of(window.base, partition, first.offset)
    return replace(behind, messages=messages, catch_up_seconds=None)


class WindowRead:
    """The messages of a window of one log from an offset on, for one fetch."""

    __slots__ = (
        *("_all_known", "_made", "_may_send_file", "_memory", "_services", "_window", "committed"),
        *("is_full", "kept_offset", "known", "log", "magic", "messages", "offset", "position"),
        *("read_bytes", "records"),
    )

    def __init__(
        self,
        services: Services,
        memory: WindowMemory,
        log: Log,
        window: LogWindow,
        offset: int,
        *,
        committed: bool,
    ) -> None:
        """Raises `OffsetOutOfRange` for an offset outside of the log."""
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is outside of {log.topic}-{log.partition}, which has "
                f"{log.log_start_offset} (log start) to {log.log_end_offset} (log end)"
            )
        self._services = services
        self.log = log
        self._window = window
        self.offset = offset
        self.committed = committed
        self._memory = memory
        self.known = memory.hold(log, window, committed=committed)
        self._all_known = log.window_knowledge
        self.position = max(memory.behind_empty(self.known, offset), offset)
        """Up to where the log was searched."""
        self.records: bytearray | FileRange = bytearray()
        self.magic = -1
        self.messages = 0
        self.read_bytes = 0
        """Bytes of the log that were looked at."""
        self.is_full = False
        """Whether no more may be added."""
        self.kept_offset = offset
        """Behind the last set that was added: where the reader goes on."""
        self._may_send_file = True
        self._made: Segment | None = None
        """The segment whose time map was made last for this."""

    @property
    def end_offset(self) -> int:
        """Up to where the log can be read now."""
        return self.log.last_stable_offset if self.committed else self.log.high_watermark

    @property
    def size(self) -> int:
        return len(self.records)

    @property
    def at_end(self) -> bool:
        """Whether there is nothing more to search now."""
        return self.position >= self.end_offset

    @property
    def is_cut_off(self) -> bool:
        """Whether the log was truncated meanwhile, so that what was found may be gone."""
        return self.log.window_knowledge is not self._all_known

    async def step(
        self, room_bytes: int, turns: Turns, *, may_send_file: bool, enough: bool
    ) -> None:
        """Search on, and add what is found and has room: a bounded piece of work. The first set has
        room whatever it takes. With `enough`, what can be sent from its file is left to the next
        fetch."""
        log, end = self.log, self.end_offset
        self._may_send_file = may_send_file
        if self.position >= end:
            return
        found = self._window.find(log, self.position, end)
        if found.unready is not None and found.unready is not self._made:
            self._made = found.unready
            await make_ready(self._services, log, self._window, found.unready)
            return
        begin, stop = found.offset, stop_of(found, end)
        self.position = begin
        if begin < stop:
            left_out = aborted_batches(log, begin, stop) if self.committed else None
            whole = False
            if found.unready is None:
                stop, whole = self._window.like_stretch(log, begin, stop)
            if whole and left_out is None:
                await self._add_stored(begin, stop, room_bytes, enough=enough)
            else:
                await self._add_chosen(begin, stop, room_bytes, turns, left_out)

    def lend(self, room_bytes: int) -> bool:
        """Add sets that are known to go as stored, as a range of the file. Returns whether there
        are some, or nothing more to search. Raises `FarAway` if the search takes long, and the
        errors of `reader.read`."""
        end = self.end_offset
        begin = self.position
        if begin >= end:
            return True
        stop = min(self._memory.stored_until(self.known, begin), end)
        if stop == begin:
            return False
        if self.committed and aborted_batches(self.log, begin, stop) is not None:
            return False
        return self._lend(self._slice(begin, stop, room_bytes, far=False), stop)

    def _lend(self, found: Slice | None, stop: int) -> bool:
        """Add a slice as a range of the file, if it is large enough and a handle is free."""
        if found is None or found.size < MIN_FILE_RANGE_BYTES:
            return False
        lent = found.stretch() if _begins_with_messages(found) else None
        if lent is None:
            return False
        self.records, self.magic, self.is_full = lent, found.magic, True
        self.messages += 1
        self.kept_offset = stop
        return True

    def remember(self) -> None:
        """Remember where there is nothing: a later fetch goes on behind it."""
        begin = self.kept_offset if self.messages else self.offset
        if self.position > begin and not isinstance(self.records, FileRange):
            self._memory.note_empty(self.known, begin, self.position)

    def _slice(self, begin: int, stop: int, room_bytes: int, *, far: bool = True) -> Slice | None:
        """The stored sets from `begin` on; `None` if those are of another format than what was
        added."""
        found = reader.read(
            self.log,
            begin,
            room_bytes,
            whole_first=True,
            committed=self.committed,
            far=far,
            end_offset=stop,
        )
        if self.messages and found.size and found.magic != self.magic:
            self.is_full = True
            return None
        return found

    async def _add_stored(self, begin: int, stop: int, room_bytes: int, *, enough: bool) -> None:
        """Add sets as they are stored, all of whose messages are in the window."""
        found = self._slice(begin, stop, max(room_bytes - self.size, 0))
        if found is None:
            return
        if not found.size:
            self.position = stop
            return
        if self.messages and found.size > room_bytes - self.size:
            self.is_full = True
            return
        if self._may_send_file and found.size >= MIN_FILE_RANGE_BYTES:
            if self.messages and enough:
                self.is_full = True
            elif not self.messages:
                self._lend(found, stop)
            if self.is_full:
                self._memory.note_stored(self.known, begin, stop)
                return
        data = await self._read(found)
        walked = walk(data, 0, len(data), check_crc=False)
        if not walked.end:
            # Not even one set has room: the reader sees by its size that it has to ask for more.
            self.records, self.is_full = bytearray(data), True
            return
        begin_at = 0 if self.messages else _first_with_messages(data, walked.end)
        if begin_at == walked.end:
            self.position = walked.last_offset + 1
            return
        self._add(memoryview(data)[begin_at : walked.end], found.magic, walked.count)
        self.position = self.kept_offset = walked.last_offset + 1
        self.is_full = walked.end < len(data) or self.size >= room_bytes

    async def _add_chosen(
        self,
        begin: int,
        stop: int,
        room_bytes: int,
        turns: Turns,
        left_out: Callable[[BatchHeader], bool] | None,
    ) -> None:
        """Add the messages in the window of sets that may have others, too."""
        services = self._services
        left = room_bytes - self.size
        wanted = min(max(left, _LEAST_READ_BYTES), _READ_BYTES)
        async with services.conversions.place():
            found = self._slice(begin, stop, wanted)
            if found is None:
                return
            if found.segment is None or not found.size:
                self.position = stop
                return
            data = await self._read(found)
            choose = self._window.chooser(found.segment, begin, stop)
            steps = selection(
                data,
                choose,
                from_offset=max(begin, self.offset),
                max_bytes=max(left, 0),
                max_content_bytes=self.log.settings.max_decompressed_bytes,
                left_out=left_out,
            )
            try:
                chosen = await _run(services, turns, steps, in_thread=_is_heavy(data))
            except DamagedSlice as error:
                raise found.segment.damage(found.position) from error
        if not chosen.is_full and chosen.next_offset <= begin:
            raise found.segment.damage(found.position)  # There is no whole set at all.
        self.read_bytes += chosen.used_bytes
        if chosen.messages and self.messages and len(chosen.data) > left:
            self.is_full = True
            return
        if chosen.messages:
            self._add(chosen.data, found.magic, chosen.messages)
            self.kept_offset = chosen.kept_offset
        self.is_full = chosen.is_full or self.size >= room_bytes > 0
        self.position = max(chosen.next_offset, begin)

    def _add(self, data: Buffer, magic: int, messages: int) -> None:
        assert isinstance(self.records, bytearray)
        self.records += data
        self.magic = magic
        self.messages += messages

    async def _read(self, found: Slice) -> bytes:
        """The bytes of a slice, read in a thread where that waits for the disk."""
        data = found.read_now() if found.size <= 2 * _READ_BYTES else None
        if data is None:
            lent = found.stretch()
            if lent is None:
                return found.read()
            data = await self._services.work.in_reading_thread(
                lambda: lent.file.pread(found.size, found.position)
            )
            if not lent.intact:
                raise OffsetOutOfRange("the log was cut off while it was read; try again")
        return bytes(data)


class WindowPart:
    """A partition of a window topic in a fetch."""

    __slots__ = ("error", "key", "number", "read", "topic", "wanted", "window")

    def __init__(self, topic: str, window: WindowName, wanted: FetchPartition, number: int) -> None:
        self.topic = topic
        self.key: Partition = (window.base, wanted.partition)
        self.window = log_window(window)
        self.wanted = wanted
        self.number = number
        """Which one of the fetch it is."""
        self.read: WindowRead | None = None
        self.error: Exception | None = None


class AwaitedPartition:
    """What a fetch waits for in a partition of a base: any message of the windows that it names, or
    an offset above the end. A check takes about as long for ten thousand windows as for one."""

    __slots__ = (
        "_awaited",
        "_committed",
        "_knowledge",
        "_least_offset",
        "_log",
        "_position",
        "_union",
        "parts",
    )

    def __init__(self, *, committed: bool) -> None:
        self.parts: list[WindowPart] = []
        """The partitions of windows that have their messages here."""
        self._committed = committed
        self._union: WindowUnion | None = None
        self._log: Log | None = None
        self._knowledge: object = None
        """Is another one when the log was truncated."""
        self._awaited: AwaitedTimes | None = None
        """What the log's notes of appends know of the times of the windows."""
        self._position = 0
        """Up to where there is nothing more in any window."""
        self._least_offset = INT64_MAX
        """The smallest offset that is waited for above the end of the log."""

    def begin(self) -> None:
        """Begin to watch the log; `add` is called next for each of the parts."""
        if self._union is None:
            self._union = WindowUnion(part.window for part in self.parts)
        self._log, self._knowledge, self._awaited = None, None, None
        self._position = self._least_offset = INT64_MAX

    def add(self, part: WindowPart) -> bool:
        """Watch from where a part was searched to. Return whether the log is that of the others,
        and was not truncated since."""
        read = part.read
        if read is None:
            self._least_offset = min(self._least_offset, part.wanted.fetch_offset)
            return True
        if self._log is None:
            assert self._union is not None
            self._log, self._knowledge = read.log, read.log.window_knowledge
            self._awaited = self._union.watch_appends(read.log)
        self._position = min(self._position, read.position)
        return read.log is self._log and not read.is_cut_off

    def passes_over(self, log: Log) -> bool:
        """Whether the fetch need not be checked: all appends since it was are outside of the times
        for which readers wait. Called within an append."""
        recent, awaited = log.recent_appends, self._awaited
        if recent is None or awaited is None:
            return False
        return recent.may_pass_over(self._position, log.log_end_offset, awaited)

    def may_have(self, log: Log) -> bool:
        """Whether the log may have something for the fetch since it was searched. What was appended
        is passed over if the times that were noted say that it has nothing."""
        if log.log_end_offset >= self._least_offset:
            return True
        if self._log is None:
            return False
        if log is not self._log or log.window_knowledge is not self._knowledge:
            return True
        end = log.last_stable_offset if self._committed else log.high_watermark
        if self._position < end:
            assert self._union is not None
            if not self._union.appends_lack(log, self._position, end, self._awaited):
                return True
            self._position = end
        return False

    def catch_up(self) -> None:
        """Pass over what was appended since the last look and has nothing for the fetch."""
        if self._log is not None:
            self.may_have(self._log)

    def pass_over(self, part: WindowPart) -> None:
        """Have the search of a part go on behind what was passed over for all of them."""
        read = part.read
        if read is not None and read.log is self._log and not read.is_cut_off:
            read.position = max(read.position, self._position)


def _begins_with_messages(found: Slice) -> bool:
    """Whether the first set of a slice, whose place was just looked up, has messages."""
    if found.magic != BATCH_MAGIC or found.segment is None:
        return True
    data = found.segment.file.pread_now(BATCH_OVERHEAD, found.position)
    return data is None or _first_with_messages(bytes(data), len(data)) == 0


def _first_with_messages(data: bytes, end: int) -> int:
    """Where the first set begins that has messages. An answer must not begin with others, of
    another format perhaps, nor have nothing else."""
    position = 0
    while position < end and data[position + MAGIC_AT] == BATCH_MAGIC:
        header = read_header(data, position)
        if header.record_count and not header.is_control:
            break
        position += header.size_bytes
    return position


def _is_heavy(data: bytes) -> bool:
    """Whether to choose among messages takes more than a turn of the loop: sets that have to be
    opened, or a large one."""
    if len(data) > 2 * _READ_BYTES:
        return True
    return walk(data, 0, len(data), check_crc=False).codecs > 1 << Codec.NONE


async def _run(
    services: Services, turns: Turns, steps: Steps[Selected], *, in_thread: bool
) -> Selected:
    """Choose among messages, in turns of the loop, or all at once in a thread."""
    if in_thread:
        return await services.work.in_conversion_thread(lambda: run(steps))
    try:
        while True:
            call = next(steps)
            assert call is None, "nothing has to be opened"
            await turns.give_way()
    except StopIteration as stop:
        found: Selected = stop.value
        return found
