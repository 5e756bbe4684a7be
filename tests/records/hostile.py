"""Bytes and numbers that mean harm, and what each function of the kernel makes of them.

`CALLS` has each name of the kernel that can be called; what a call gives is made of plain values,
so that those of two forms can be compared.
"""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from itertools import accumulate, pairwise
from operator import itemgetter
from struct import pack_into
from types import ModuleType, SimpleNamespace
from typing import Any, Final
from zlib import crc32

import google_crc32c
import msgspec
from hypothesis import strategies as st

from horolog.protocol.records.binary import BinaryColumn
from horolog.protocol.records.kernel import reference
from horolog.protocol.records.kernel.terms import RECORD, FieldKind, Offsets, Unreadable
from horolog.protocol.records.marks import Marks
from horolog.protocol.records.messages.sets import NewRecord, build_set

from . import unchanged_sets

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
LARGE: Final = 2**62

EDGES: Final = (INT64_MIN, INT64_MIN + 1, -LARGE, -2, -1, 0, 1, 2, 50, LARGE, INT64_MAX)
any_int64 = st.sampled_from(EDGES) | st.integers(INT64_MIN, INT64_MAX)
times = st.sampled_from([-1, 0, 1, 50, LARGE, INT64_MAX - 1, INT64_MAX])
offsets = st.integers(0, 9) | st.integers(0, LARGE)
lengths = st.sampled_from(
    [-(2**31), -13, -12, -2, -1, 0, 1, 2, 9, 13, 14, 21, 22, 48, 49, 61, INT32_MAX - 12, INT32_MAX]
)
spoiling = st.sampled_from([0, 1, 2, 3, 8, 16, 127, 128, 129, 254, 255])

ENTRY_FIELDS: Final = ((0, ">q"), (8, ">i"), (18, ">q"), (18, ">i"), (22, ">i"), (26, ">i"))
BATCH_FIELDS: Final = (
    *((0, ">q"), (8, ">i"), (23, ">i"), (27, ">q"), (35, ">q"), (43, ">q"), (53, ">i"), (57, ">i")),
)


def with_good_crc(entry: bytearray) -> bytearray:
    """What is wrong with an entry is looked at only behind its CRC."""
    if entry[16] == 2:
        pack_into(">I", entry, 17, google_crc32c.value(bytes(entry[21:])))
    else:
        pack_into(">I", entry, 12, crc32(entry[16:]))
    return entry


@st.composite
def hostile_entries(draw: st.DrawFn) -> bytearray:
    """A message or a batch, one in three with fields that mean harm."""
    magic = draw(st.sampled_from([0, 1, 1, 2, 2, 2]))
    sent = [
        NewRecord(
            draw(st.none() | st.binary(max_size=12)), draw(st.sampled_from([None, b"", b"k"]))
        )
        for _ in range(draw(st.integers(1, 3)) if magic == 2 else 1)
    ]
    entry = build_set(sent, magic=magic, base_offset=draw(st.integers(0, 4)))
    if draw(st.integers(0, 2)):
        return entry
    for at, form in draw(
        st.lists(st.sampled_from(BATCH_FIELDS if magic == 2 else ENTRY_FIELDS), max_size=2)
    ):
        entry += bytes(8)
        pack_into(form, entry, at, draw(any_int64 if form == ">q" else lengths))
        del entry[-8:]
    for place, byte in draw(st.lists(st.tuples(st.integers(17, 90), spoiling), max_size=3)):
        entry[place % len(entry)] = byte
    return with_good_crc(entry) if draw(st.booleans()) else entry


@st.composite
def hostile_sets(draw: st.DrawFn) -> bytes:
    data = b"".join(draw(st.lists(hostile_entries(), max_size=5)))
    data += draw(st.sampled_from([b"", b"", b"\0", bytes(11), bytes(26), b"\xff" * 61]))
    return data[: draw(st.just(len(data)) | st.integers(0, len(data)))]


@st.composite
def hostile_records(draw: st.DrawFn) -> bytes:
    """What a batch has behind its header."""
    sent = [
        NewRecord(
            draw(st.none() | st.binary(max_size=70)),
            draw(st.sampled_from([None, b"", b"key", b"k" * 64])),
            draw(times),
            draw(st.sampled_from([(), (), (("name", b"value"), ("", None))])),
        )
        for _ in range(draw(st.integers(0, 4)))
    ]
    data = bytearray()
    for record in sent:
        data += build_set([record], magic=2)[61:]
    if sent and all(record.timestamp_ms < LARGE for record in sent) and draw(st.booleans()):
        data = build_set(sent, magic=2)[61:]  # with offsets that count up
    for place, byte in draw(st.lists(st.tuples(st.integers(0, 200), spoiling), max_size=3)):
        if data:
            data[place % len(data)] = byte
    data += draw(st.sampled_from([b"", b"", b"\x0c", b"\xff" * 12, bytes(9)]))
    return bytes(data[: draw(st.just(len(data)) | st.integers(0, len(data)))])


def _shifted(content: bytes, by: int) -> memoryview:
    """Bytes at a place where no number would be by itself."""
    return memoryview(bytes(by) + content)[by:]


@st.composite
def hostile_columns(draw: st.DrawFn) -> BinaryColumn:
    """A binary column whose buffers may contradict each other."""
    contents = draw(st.lists(st.binary(max_size=9), max_size=5))
    ends = [0, *accumulate(len(content) for content in contents)]
    if draw(st.integers(0, 2)) == 0:
        ends[draw(st.integers(0, len(ends) - 1))] = draw(lengths)
    held = array("i", ends).tobytes()
    held = held[: draw(st.just(len(held)) | st.integers(0, len(held)))]
    valid = draw(st.none() | st.binary(max_size=2))
    shifted = _shifted(held, draw(st.integers(0, 3)))
    return BinaryColumn(shifted, b"".join(contents), valid, 0)


@dataclass(frozen=True)
class Drawn:
    """What a call takes from; most take only some of it."""

    data: bytes
    records: bytes
    start: int
    end: int
    cut: int
    number: int
    other: int
    time_ms: int
    offset: int
    count: int
    magic: int
    flag: bool
    rule: Offsets
    set_ends: list[int]
    values: BinaryColumn
    keys: BinaryColumn | None
    column: list[Any]

    @property
    def window(self) -> tuple[int, int]:
        """Where a function looks in `data`: mostly all of it, at times what is not there."""
        return self.start, len(self.data) + self.end

    @property
    def ends_of_sets(self) -> list[int]:
        """Mostly of one set with everything in it."""
        return [*(self.set_ends if self.flag else ()), len(self.data)]


drawn = st.builds(
    Drawn,
    data=hostile_sets(),
    records=hostile_records(),
    start=st.sampled_from([0, 0, 0, 0, 1, 26, 61, 500, INT64_MAX, -1, INT64_MIN]),
    end=st.sampled_from([0, 0, 0, 0, -1, -3, -60, 1, LARGE, -LARGE]),
    cut=st.integers(-1, 100),
    number=any_int64,
    other=any_int64,
    time_ms=times,
    offset=offsets,
    count=st.integers(0, 6) | st.sampled_from([-1, 1000, INT32_MAX, LARGE, INT64_MAX, INT64_MIN]),
    magic=st.sampled_from([0, 1]),
    flag=st.booleans(),
    rule=st.sampled_from(list(Offsets)),
    set_ends=st.lists(st.integers(-1, 300), max_size=4) | st.lists(any_int64, max_size=3),
    values=hostile_columns(),
    keys=st.none() | hostile_columns(),
    column=st.lists(
        st.none()
        | st.binary(max_size=5)
        | any_int64
        | st.integers()
        | st.just("text")
        | st.just(True),
        max_size=4,
    ),
)


def plain(value: Any) -> Any:
    """`value` as it can be compared with that of the other form."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Marks):
        return [list(getattr(value, name)) for name in Marks.__slots__]
    if is_dataclass(value):
        return [plain(getattr(value, field.name)) for field in fields(value)]
    known = getattr(reference, type(value).__name__, None)
    if known is not None and hasattr(known, "__slots__"):
        return {name: plain(getattr(value, name)) for name in public(known)}
    return value


def public(known: type) -> list[str]:
    return [name for name in known.__slots__ if not name.startswith("_")]  # type: ignore[attr-defined]


def outcome(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a call gives, or how it raises; the texts of `TypeError` are Python's own."""
    try:
        return plain(call(*arguments, **options))
    except TypeError:
        return "TypeError"
    except (ValueError, IndexError, BufferError, OverflowError) as error:
        return type(error).__name__, str(error)


def one_fault(value: Any, time_ms: int) -> int:
    """The time for a message with this value: of two faults either form may say either."""
    return time_ms if value is None or isinstance(value, bytes) else -1


def _walk(kernel: ModuleType, these: Drawn) -> Any:
    data = bytearray(these.data)
    found = outcome(
        kernel.walk,
        data,
        *these.window,
        offsets=these.rule,
        base_offset=these.offset,
        check_crc=these.flag,
        now_ms=these.time_ms,
        interval_bytes=these.cut,
        largest_ms=these.time_ms,
        segment_offset=these.offset,
        segment_position=these.count if 0 <= these.count <= INT32_MAX else 0,
        keyed=bool(these.count & 1),
    )
    return found, bytes(data)


def _split_frames(kernel: ModuleType, these: Drawn) -> Any:
    whole = len(these.records).to_bytes(4, "big") + these.records
    data = bytearray(whole * (these.magic + 1) + these.data)
    content = memoryview(data) if these.flag else data
    return outcome(kernel.split_frames, content, len(data) + these.end, these.cut * 10)


def _grown_buffer(kernel: ModuleType, these: Drawn) -> Any:
    content = memoryview(these.data) if these.flag else bytearray(these.data)
    grown = outcome(kernel.grown_buffer, content, len(content) + min(these.end, 1_000))
    # What is behind the content is not set.
    return grown if isinstance(grown, tuple) else (len(grown), grown[: len(content)])


def _take_unchanged(kernel: ModuleType, these: Drawn) -> Any:
    ends = sorted({end for end in these.ends_of_sets if 0 <= end <= len(these.data)})
    sets: list[Any] = [these.data[start:end] for start, end in pairwise([0, *ends])]
    if these.cut & 64:
        sets = [bytearray(these.data)]
    # v0 has no place for an append time, so that no caller asks for both.
    append_time_ms = -1 if these.cut & 1 or these.count & 1 else abs(these.other) % 2**62
    take = kernel.take_unchanged if kernel is not reference else unchanged_sets.take_unchanged
    found = take(
        sets,
        base_offset=max(these.offset, 0) % 2**62,
        now_ms=these.time_ms,
        magics=these.count % 8,
        append_time_ms=append_time_ms,
        lowest_ms=0 if these.cut & 2 else these.number,
        highest_ms=2**63 - 1 if these.cut & 4 else these.other,
        entry_max_bytes=1000 if these.cut & 8 else these.cut,
        room_bytes=10_000 if these.cut & 16 else these.cut,
        marks_max=these.count if these.cut & 32 else 100,
        interval_bytes=these.cut % 50,
        since_bytes=0,
        largest_ms=these.time_ms,
        magic=these.magic,
        segment_offset=max(these.offset, 0) % 2**62,
        segment_position=these.cut,
        close_ms=these.count % 1_000 - 1,
        # There is no room for the times of more than 16 blocks.
        block_bytes=0 if these.cut & 128 else len(these.data) // 8 + 1,
        block_since_bytes=these.count % (len(these.data) // 4 + 1),
        keyed=these.flag,
    )
    if found is None:
        return None
    return plain(found), {name: plain(getattr(found, name)) for name in reference.Walk.__slots__}


def _cursor(kernel: ModuleType, these: Drawn) -> Any:
    cursor = kernel.RecordCursor(memoryview(these.records), 0, len(these.records))
    said = []
    while (step := cursor.step()) == RECORD:
        said += [plain(cursor), cursor.key(), cursor.value(), cursor.headers()]
    said += [step, cursor.position, cursor.step(), cursor.following]
    said.append(outcome(cursor.begin, these.start, these.end))
    return plain(said), outcome(kernel.RecordCursor, memoryview(these.data), *these.window)


def _find_timestamp(kernel: ModuleType, these: Drawn) -> Any:
    cursor = kernel.RecordCursor(memoryview(these.records), 0, len(these.records))
    step = kernel.find_timestamp(cursor, these.number, these.other)
    return step, cursor.position, plain(cursor) if step == RECORD else None


def _set_encoder(kernel: ModuleType, these: Drawn) -> Any:
    encoder = kernel.SetEncoder(these.magic, these.offset)
    said = [
        outcome(encoder.add, value, b"key", one_fault(value, these.number) if these.flag else -1)
        for value in these.column
    ]
    said.append(outcome(encoder.add_columns, these.column, None, [-1] * 3))
    said.append(outcome(encoder.add_columns, [b"v"] * 2, these.column, [-1, -1]))
    said.append(outcome(encoder.add_columns, [b"v"] * len(these.column), None, these.column))
    said.append(outcome(kernel.SetEncoder, these.cut, 0))
    return said, plain(encoder.finish()), plain(encoder.finish())


class _Waiter(list[Any]):
    """Keeps its results."""

    def done(self) -> bool:
        return len(self) > 1

    set_result = list.append


def _collected(kernel: ModuleType, these: Drawn) -> Any:
    """Columns and waiters that need not be as long as each other, and any window of them."""
    room, collected = kernel.ByteRoom(these.number % 300), kernel.Collected()
    said = []
    for value in these.column:
        room.held = these.flag and value is None
        wanted = these.time_ms, these.other % 300, room, _Waiter
        said.append(outcome(collected.add, value, b"key", *wanted))
        said.append(outcome(collected.append, None, b"key", these.time_ms, 7, _Waiter([value])))
        said.append((room.take(these.cut), room.taken_bytes, collected.size_bytes))
    waiters = list(collected.waiters)
    del collected.times_ms[len(these.column) - these.cut % 3 :]
    for begin, end in (these.window, (these.count, INT64_MAX), (-1, INT64_MAX)):
        place = tuple, ("t", 0), min(these.offset, LARGE), these.time_ms
        said.append(outcome(collected.place, begin, end, *place))
    return said, [list(waiter) for waiter in waiters], [one is None for one in collected.waiters]


def _record_encoder(kernel: ModuleType, these: Drawn) -> Any:
    encoder = kernel.RecordEncoder()
    said: list[Any] = []

    def say(call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        said.extend((outcome(call, *arguments, **options), plain(encoder), encoder.size_bytes))

    for value in these.column:
        time_ms = one_fault(value, these.number)
        say(encoder.add, value, b"key", time_ms, (("name", b"v"),) * (these.cut % 3))
    time_ms = these.time_ms
    for value in these.column:
        time_ms = one_fault(value, time_ms)
    say(encoder.add_columns, these.column, None, [time_ms] * 2)
    if these.flag:
        said.append(plain(encoder.finish()))
    say(encoder.add_messages, these.data, *these.window)
    say(encoder.add_records, these.records, these.number, these.time_ms)
    rows = max(len(memoryview(these.values.offsets)) // 4 - 1, 0)
    stamps = array("q", [these.time_ms] * (rows if these.magic else these.cut % 4)).tobytes()
    start = these.start if these.start < 10 else these.cut % 3
    for limit_bytes in (these.cut, 200, -these.cut):
        say(
            encoder.add_binary,
            these.values,
            these.keys,
            _shifted(stamps, these.cut % 8),
            start=start,
            limit_bytes=limit_bytes,
        )
    return said, plain(encoder.finish())


def _onto(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """A call that adds to a target, which is left as it was when it raises."""
    target = bytearray(b"before")
    return outcome(call, target, *arguments, **options), bytes(target)


def _in_place(call: Callable[..., Any], data: bytes, *arguments: Any) -> Any:
    buffer = bytearray(data)
    refused = outcome(call, data, *arguments)  # not writable
    return outcome(call, buffer, *arguments), bytes(buffer), refused


def _field(kernel: ModuleType, kind: FieldKind, limit: int = 0, **inner: Any) -> Any:
    """A reader of a field that may be null."""
    message, item = inner.get("message"), inner.get("item")
    return kernel.FieldReader(kind.value, limit, True, message, item, 4, 2)


def _message_reader(kernel: ModuleType, these: Drawn) -> Any:
    """All kinds of fields, a message in an array among them; one may be of any size."""
    head = [("a", _field(kernel, FieldKind.INT16)), ("b", _field(kernel, FieldKind.BOOLEAN))]
    inner = kernel.MessageReader(
        dict,
        [*head, ("c", _field(kernel, FieldKind.TEXT, 9)), ("d", _field(kernel, FieldKind.INT64))],
    )
    item = _field(kernel, FieldKind.MESSAGE, message=inner)
    whole = kernel.MessageReader(
        dict,
        [
            ("e", _field(kernel, FieldKind.INT8)),
            ("f", _field(kernel, FieldKind.BYTES, max(these.cut, 0))),
            ("g", _field(kernel, FieldKind.VIEW, INT32_MAX)),
            ("h", _field(kernel, FieldKind.ARRAY, max(these.count, 0), item=item)),
            ("i", _field(kernel, FieldKind.INT32)),
        ],
    )
    data = these.records + these.data
    begins = [data[: these.count % 7], bytes(these.data[:3])]
    return [
        *(
            outcome(_read_or_not, reader, data, at, these.number)
            for reader in (inner, whole)
            for at in (these.start, these.cut, len(data))
        ),
        *(
            outcome(reader.whole, begin, these.number, data)
            for reader in (inner, whole)
            for begin in begins
        ),
    ]


def _read_or_not(reader: Any, data: bytes, at: int, room: int) -> Any:
    try:
        message, end, left = reader.read(data, at, room)
    except (Unreadable, UnicodeDecodeError) as error:
        return type(error).__name__
    return sorted(message.items(), key=itemgetter(0)), end, left


def _fields(these: Drawn) -> Iterator[tuple[FieldKind, Any]]:
    """Values, each with the kinds of field that may have it."""
    for value in (these.number, these.count, these.cut, these.magic, *these.column):
        for kind in FieldKind:
            if kind in (FieldKind.MESSAGE, FieldKind.ARRAY):
                continue
            wants_bytes = kind in (FieldKind.BYTES, FieldKind.VIEW)
            fits = (isinstance(value, bytes), isinstance(value, str))
            if value is None or fits == (wants_bytes, kind is FieldKind.TEXT):
                yield kind, value


def _message_writer(kernel: ModuleType, these: Drawn) -> Any:
    """Numbers that have room and such that have none, in fields of all sizes."""
    said = []
    for kind, value in _fields(these):
        if value is None and kind not in (FieldKind.TEXT, FieldKind.BYTES):
            continue
        field = kernel.FieldWriter(kind.value, None, None, None)
        writer = kernel.MessageWriter([("field", field), ("other", field)])
        both = SimpleNamespace(field=value, other=value)
        said.append(outcome(writer.frame, value, value))
        said.append(outcome(writer.parts, value, value))
        said.append(outcome(writer.joined, [value] * 3, [value] * 3))
        inner = kernel.FieldWriter(FieldKind.MESSAGE.value, None, writer, None)
        items = kernel.FieldWriter(FieldKind.ARRAY.value, None, None, inner)
        many = kernel.MessageWriter([("items", items)])
        said.append(outcome(many.frame, [both] * 3))
        said.append(outcome(writer.frame, value)[0])
    return [_sized(one) for one in said]


def _produce_rows(kernel: ModuleType, these: Drawn) -> Any:
    """Requests that name partitions, of which some are of other classes, or name none."""
    rows = kernel.ProduceRows(_sent, SimpleNamespace, SimpleNamespace)
    requests = []
    for end in these.set_ends:
        asked = SimpleNamespace(partition=end % 2, records=these.data if end % 3 else None)
        topic = SimpleNamespace(name="ab"[end % 5 == 0], partitions=[asked] * (end % 13 > 0))
        topics = [topic] * (1 + (end % 17 == 0))
        transaction = "t" if end % 19 == 0 else None
        kind = SimpleNamespace if end % 7 else _Request
        requests.append(kind(topics=topics, acks=end % 23 > 0, transactional_id=transaction))
    found = rows.read(requests, True)
    if found is None:
        return None
    sent = [one for of_one in found[0].values() for one in of_one]
    rows.appended(sent, these.set_ends[:-1], these.number)
    return str(found)


class _Request:
    """A request with fields that are no slots of its own."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        return self._fields[name]


def _sent(target: Any, records: Any, *, partition: int) -> Any:
    return SimpleNamespace(target=target, records=records, partition=partition)


def _packed_message(kernel: ModuleType, these: Drawn) -> Any:
    """The same in msgpack, with fields that are left out, and names of all lengths."""
    said = []
    for kind, value in _fields(these):
        field = kernel.PackedField(kind.value, None, None, None)
        fields = [("field", field, ()), ("a" * 31, field, (0,)), ("b", field, (None,))]
        writer = kernel.PackedMessage(fields)
        each = SimpleNamespace(field=value, b=value, **{"a" * 31: value})
        inner = kernel.PackedField(FieldKind.MESSAGE.value, None, writer, None)
        items = kernel.PackedField(FieldKind.ARRAY.value, None, None, inner)
        many = kernel.PackedMessage([("items", items, ())])
        said += [
            outcome(writer.frame, value, value, value),
            outcome(writer.parts, value, value, value),
            outcome(writer.joined, [value] * 3, [value] * 3, [value] * 3),
            outcome(many.frame, [each] * (abs(these.count) % 40)),
            outcome(writer.frame, value)[0],
        ]
    said.append(outcome(kernel.PackedMessage, [("c" * 32, field, ())]))
    return [_sized(one) for one in said]


def _request_reader(kernel: ModuleType, these: Drawn) -> Any:
    """Frames of another kind, too long ones, and such as cannot be decoded, or have long texts."""
    said = []
    for size, limit in pairwise((0, 3, *(abs(end) % 300 for end in these.set_ends))):
        reader = kernel.RequestReader(
            lambda frame: SimpleNamespace(real=msgspec.msgpack.decode(frame)[1], imag=None),
            (msgspec.DecodeError, RecursionError, TypeError, ValueError, LookupError),
            these.data[: these.cut % 4] if these.flag else b"\x92\x01",
            abs(these.count) % 9,
            abs(these.end) % 35,
            kernel.TextLimits([("real", limit), ("imag", limit)]),
        )
        text = msgspec.msgpack.encode([1, "\u00fc" * (size // 3)])
        for frame in (these.data[:size], text, text[:-1]):
            said += [outcome(reader.read, each(frame)) for each in (bytes, bytearray, memoryview)]
    return [str(one) for one in said]


def _packed(kernel: ModuleType, these: Drawn) -> Any:
    """Any bytes, and values that are nested, cut off or followed by others."""
    nested: Any = [these.number, "a" * (abs(these.count) % 300), None, these.flag, 0.5]
    for depth in range(abs(these.cut) % 20):
        nested = {"of": nested} if depth % 3 else [nested] * (depth % 2 + 1)
    packed = msgspec.msgpack.encode(nested)
    whole = [these.data, packed, packed + these.data[:3], packed[: abs(these.end) % len(packed)]]
    return [outcome(kernel.packed_places, data) for data in (*whole, b"")] + [
        outcome(kernel.packed_fault, data, values, depth)
        for data in whole
        for values in (abs(these.count) % 70, 10_000)
        for depth in (abs(these.offset) % 34, 16)
    ]


def _text_limits(kernel: ModuleType, these: Drawn) -> Any:
    """Texts, lists and messages of them, and what is none."""
    text = chr(these.cut % 0xD800) * (these.count % 50)
    inner = kernel.TextLimits([("text", these.end % 99), ("texts", these.cut % 99)])
    outer = kernel.TextLimits([("one", inner), ("many", inner), ("none", 5)])
    one = SimpleNamespace(text=text, texts=[text, text[1:]])
    said: list[Any] = [inner.shortest, outer.shortest, kernel.TextLimits([]).shortest]
    said += [
        outcome(outer.check, SimpleNamespace(one=one, many=many, none=None))
        for many in ([], [one] * (these.cut % 4), None)
    ]
    said.append(outcome(inner.check, SimpleNamespace(text=text, texts=None)))
    said.append(outcome(lambda: kernel.TextLimits([("a", 1)] * (these.cut % 40)).shortest))
    return said


def _time_map(these: Drawn) -> bytes:
    """Blocks of which the last may be cut off, or whose numbers may be any."""
    times = array("q", [these.time_ms, *these.set_ends])
    rows = reference.time_spans(
        times, log_bytes=abs(these.count) % 2**62 + 1, offsets=abs(these.offset) % 2**62 + 9
    )
    block, *_ = reference.time_blocks(array("q", rows), block_bytes=1, whole=True)
    data = block * (these.cut % 4) + (these.records if these.flag else b"")
    return data[: len(data) - abs(these.end) % 7]


def _appends(these: Drawn) -> list[int]:
    """Of which the first ones are sound, and the last may be any numbers."""
    appends: list[int] = []
    for end in these.set_ends:
        low, length = (abs(end) % 2**40, end % 7) if end % 3 else (-1, 0)
        if end % 5:
            appends += (0, 0, low, low + length, 1, abs(end) % 2**20)
        appends += (abs(end) % 2**61 + 1, abs(end) % 9 + 3, low, low + length, 1, 1)
    if these.cut % 2:
        appends += (these.count, these.offset, these.time_ms, these.number, these.other, 1)
    return appends


def _counted(call: Callable[..., Any], these: Drawn, *arguments: Any, **options: Any) -> Any:
    counts = array("q", bytes(8 * (these.cut % 5)))
    said = outcome(
        call,
        *arguments,
        counts,
        begin_offset=these.start,
        end_offset=these.number if these.flag else INT64_MAX,
        from_ms=max(these.time_ms, 0) if these.magic else these.time_ms,
        last_ms=these.other,
        every_ms=these.count,
        **options,
    )
    return said, counts.tolist()


def _marks(these: Drawn) -> bytes:
    """Of few rows, which may be as many as there are."""
    return bytes(these.data[: these.cut % 9])


def _sized(said: Any) -> Any:
    """Of a number that has no room either form may say it in its own way."""
    return said[0] if isinstance(said, tuple) and said[0] == "OverflowError" else said


def _columns_for(kernel: ModuleType, these: Drawn) -> Any:
    found = kernel.columns_for(these.cut + 1, 3, these.start % 7)
    sizes = {name: len(getattr(found, name)) for name in COLUMNS}
    return sizes, plain(found.key_valid), plain(found.value_valid), plain(found.key_offsets[:4])


COLUMNS: Final = [name for name in public(reference.Gathered) if name.split("_")[-1] != "nulls"]
COLUMNS.remove("count")
COLUMNS.remove("end")

Call = Callable[[ModuleType, Drawn], Any]
CALLS: Final[dict[str, Call]] = {
    "ByteRoom": _collected,
    "Collected": _collected,
    "MessageReader": _message_reader,
    "MessageWriter": _message_writer,
    "PackedMessage": _packed_message,
    "ProduceRows": _produce_rows,
    "RecordCursor": _cursor,
    "RecordEncoder": _record_encoder,
    "RequestReader": _request_reader,
    "SetEncoder": _set_encoder,
    "TextLimits": _text_limits,
    "append_entries": lambda kernel, these: outcome(
        kernel.append_entries,
        [these.offset, *these.set_ends],
        these.number if these.flag else these.offset - abs(these.count) % 2**32,
        these.time_ms,
    ),
    "batch_problem": lambda kernel, these: outcome(
        kernel.batch_problem, memoryview(these.data), *these.window, these.flag
    ),
    "check_records": lambda kernel, these: outcome(
        kernel.check_records,
        *(these.records, min(these.start, 500), len(these.records) + these.end),
        base_timestamp_ms=these.number,
        now_ms=these.other,
        keyed=these.flag,
    ),
    "columns_for": _columns_for,
    "packed_fault": _packed,
    "packed_places": _packed,
    "crc32": lambda kernel, these: outcome(kernel.crc32, these.data),
    "crc32c": lambda kernel, these: outcome(kernel.crc32c, these.data, *these.window),
    "find_first_time": lambda kernel, these: outcome(
        kernel.find_first_time,
        these.data,
        these.offset if these.cut % 4 else int.from_bytes(these.data[:8], "big", signed=True),
        these.flag,
        these.time_ms if these.magic else these.number,
    ),
    "find_timestamp": _find_timestamp,
    "gather": lambda kernel, these: outcome(
        kernel.gather,
        *(these.data, *these.window, these.count),
        offset_shift=these.number if these.flag else 0,
        from_offset=these.other if these.flag else 0,
        timestamp_type=these.cut % 3 - 1,
        timestamp_ms=these.time_ms,
        with_keys=bool(these.cut & 1),
        with_values=bool(these.cut & 2),
        check_crc=bool(these.cut & 8),
    ),
    "gather_records": lambda kernel, these: outcome(
        kernel.gather_records,
        these.records,
        base_offset=these.number if these.flag else these.offset,
        base_timestamp_ms=these.other,
        append_time_ms=these.time_ms,
        from_offset=these.number,
        with_keys=bool(these.cut & 1),
        with_values=bool(these.cut & 2),
        with_headers=bool(these.cut & 4),
    ),
    "keep_messages": lambda kernel, these: _onto(
        kernel.keep_messages, *(these.data, *these.window, _marks(these))
    ),
    "keep_records": lambda kernel, these: _onto(
        kernel.keep_records, *(these.records, _marks(these)), base_timestamp_ms=these.number
    ),
    "rows_between": lambda kernel, these: outcome(
        kernel.rows_between,
        array("q", these.set_ends),
        from_ms=these.number,
        last_ms=these.other,
    ),
    "only_bytes": lambda kernel, these: outcome(kernel.only_bytes, these.column),
    "only_times": lambda kernel, these: outcome(
        kernel.only_times, these.column, these.number, these.other
    ),
    "plain_end": lambda kernel, these: outcome(kernel.plain_end, these.data, *these.window),
    "producer_numbers": lambda kernel, these: outcome(
        kernel.producer_numbers, [these.data, these.records, bytearray(these.data)]
    ),
    "records_to_messages": lambda kernel, these: _onto(
        kernel.records_to_messages,
        *(these.records, max(these.cut - 90, -1)),
        magic=these.magic,
        base_offset=these.number,
        base_timestamp_ms=these.other,
        first_offset=these.offset if these.flag else -1,
        stamp_ms=these.time_ms,
        max_bytes=these.cut,
    ),
    "rewrite": lambda kernel, these: _onto(
        kernel.rewrite,
        *(these.data, *these.window, these.cut % 3 - 1),
        *(these.offset if these.flag else -1, these.number, these.time_ms),
    ),
    "rows_within": lambda kernel, these: outcome(
        kernel.rows_within,
        these.column,
        these.keys and these.column[these.count % 2 :],
        these.set_ends if these.flag else None,
        these.cut % 5 - 1,
        7,
        these.count % 300,
    ),
    "scan_offset": lambda kernel, these: outcome(
        kernel.scan_offset, these.data, *these.window, these.number
    ),
    "scan_timestamp": lambda kernel, these: outcome(
        kernel.scan_timestamp, these.data, *these.window, these.number
    ),
    "split_frames": _split_frames,
    "stamp": lambda kernel, these: _in_place(
        kernel.stamp, these.data, *these.window, these.time_ms
    ),
    "grown_buffer": _grown_buffer,
    "take_unchanged": _take_unchanged,
    "count_times": lambda kernel, these: _counted(
        kernel.count_times, these, array("q", these.set_ends * 2), array("q", these.set_ends * 2)
    ),
    "entry_spans": lambda kernel, these: outcome(
        kernel.entry_spans,
        these.data,
        these.start,
        block_bytes=these.count % 1_000 * 30,
        since_bytes=max(these.cut - 80, 0),
        next_offset=these.offset if these.flag else 0,
        check_crc=bool(these.magic % 2),
    ),
    "time_spans": lambda kernel, these: outcome(
        kernel.time_spans,
        array("q", [these.time_ms, these.number, *these.set_ends]),
        log_bytes=these.count,
        offsets=these.offset,
    ),
    "time_blocks": lambda kernel, these: outcome(
        kernel.time_blocks,
        array("q", _appends(these)),
        block_bytes=these.number,
        whole=these.flag,
    ),
    "time_map_counts": lambda kernel, these: _counted(
        kernel.time_map_counts, these, _time_map(these), base_offset=these.offset
    ),
    "time_map_extent": lambda kernel, these: outcome(
        lambda: tuple(kernel.time_map_extent(_time_map(these)))
    ),
    "time_map_runs": lambda kernel, these: outcome(
        kernel.time_map_runs,
        _time_map(these),
        base_offset=these.offset,
        from_ms=these.number,
        last_ms=these.other,
    ),
    "varint": lambda kernel, these: outcome(kernel.varint, these.number),
    "walk": _walk,
}
"""What is asked of each name, by both forms."""


ANSWERS: Final = {
    *("Gathered", "RecordsFound", "UnchangedSets", "Walk"),
    *("FieldReader", "FieldWriter", "PackedField"),
}
"""Names of what the functions give, or are given, which is not called by itself."""
