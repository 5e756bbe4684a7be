"""Produce requests as rows, and fields that are read where they lie."""

import gc
import sys
import weakref
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from horolog.protocol.api.log.produce import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)
from horolog.protocol.records.kernel import (
    FieldWriter,
    MessageWriter,
    ProduceRows,
    append_entries,
)
from horolog.protocol.records.kernel.terms import MOST_FIELDS, FieldKind
from horolog.storage.index.append_times import ENTRY


class Row(ProducePartitionResult):
    target: Any
    record_set: Any
    other: int = 0


def rows() -> ProduceRows:
    return ProduceRows(Row, ProduceTopicResult, ProduceResponse)


def request(*named: tuple[str, int, bytes | None], acks: int = 1) -> ProduceRequest:
    topics = [
        ProduceTopic(name=name, partitions=[ProducePartition(partition=number, records=records)])
        for name, number, records in named
    ]
    return ProduceRequest(acks=acks, topics=topics)


def test_rows_are_by_partition_and_in_order() -> None:
    asked = [("t", 0, b"1"), ("t", 1, b"2"), ("t", 0, b"3"), ("u", 0, None), ("t", 0, b"5")]
    found = rows().read([request(one) for one in asked], 1)
    assert found is not None
    by_partition, responses = found
    sets = {target: [one.record_set for one in sent] for target, sent in by_partition.items()}
    assert sets == {("t", 0): [b"1", b"3", b"5"], ("t", 1): [b"2"], ("u", 0): [b""]}
    for (name, number, records), response in zip(asked, responses, strict=True):
        (topic,) = response.topics
        (row,) = topic.partitions
        assert (topic.name, row.target, row.partition) == (name, (name, number), number)
        assert any(row is one for one in by_partition[name, number])
        assert row.record_set == (records or b"")
        assert (row.error_code, row.base_offset, row.log_start_offset) == (0, -1, -1)


@pytest.mark.parametrize(
    "other",
    [
        request(acks=1),
        request(("t", 0, b""), ("t", 1, b"")),
        request(("t", 0, b""), acks=-1),
        ProduceRequest(acks=1, topics=[ProduceTopic(name="t", partitions=[])]),
        msgspec.structs.replace(request(("t", 0, b"")), transactional_id=""),  # type: ignore[type-var]
    ],
    ids=["no topic", "two topics", "other acks", "no partition", "a transaction"],
)
def test_requests_of_which_one_is_unusual_are_no_rows(other: ProduceRequest) -> None:
    usual = request(("t", 0, b"set"))
    assert rows().read([usual, usual], 1) is not None
    assert rows().read([usual, other], 1) is None
    assert rows().read([other], 1) is None


def test_where_rows_were_appended() -> None:
    maker = rows()
    found = maker.read([request(("t", 0, b""))] * 3, 1)
    assert found is not None
    sent = found[0]["t", 0]
    maker.appended(sent, [7, 2**62], 5)
    assert [(one.base_offset, one.log_start_offset) for one in sent] == [
        (7, 5),
        (2**62, 5),
        (-1, -1),
    ]


def test_what_a_row_had_before_is_freed_once() -> None:
    maker = rows()
    found = maker.read([request(("t", 0, b""))], 1)
    assert found is not None
    (row,) = found[0]["t", 0]
    before, start = 2**70 + 1, 2**71 + 1
    row.base_offset = before
    counts = sys.getrefcount(before), sys.getrefcount(start)
    maker.appended([row], [2**72], start)
    assert (sys.getrefcount(before), sys.getrefcount(start)) == (counts[0] - 1, counts[1] + 1)
    maker.appended([row], [2**72], 0)
    assert sys.getrefcount(start) == counts[1]


class Slotted:
    __slots__ = ("__weakref__", "a", "b")

    def __init__(self, a: int, b: int) -> None:
        self.a, self.b = a, b


class Computed:
    @property
    def a(self) -> int:
        return 3

    b = 4


class Swapped:
    __slots__ = ("b", "a")  # noqa: RUF023 - in another order than `Slotted` has them

    def __init__(self, a: int, b: int) -> None:
        self.a, self.b = a, b


class Derived(Slotted):
    __slots__ = ("c",)

    a = 9  # hides the slot


class Lending:
    __slots__ = ("a",)


class Borrowing:
    """Its `a` is of objects of another class, and at that place it has something else."""

    __slots__ = ("x", "y")

    a = Lending.__dict__["a"]
    b = 4

    def __init__(self) -> None:
        self.x = self.y = 5


def test_a_slot_of_another_class_is_not_read() -> None:
    number = FieldWriter(FieldKind.INT8.value, None, None, None)
    message = MessageWriter([("a", number), ("b", number)])
    each = FieldWriter(FieldKind.MESSAGE.value, None, message, None)
    with pytest.raises(TypeError, match="doesn't apply to a 'Borrowing' object"):
        MessageWriter([("one", each)]).frame(Borrowing())


def test_fields_are_read_of_whatever_class_an_object_is() -> None:
    number = FieldWriter(FieldKind.INT8.value, None, None, None)
    message = MessageWriter([("a", number), ("b", number)])
    each = FieldWriter(FieldKind.MESSAGE.value, None, message, None)
    writer = MessageWriter([("one", each)])
    objects = [
        (Slotted(1, 2), b"\1\2"),
        (Swapped(1, 2), b"\1\2"),
        (Computed(), b"\3\4"),
        (SimpleNamespace(a=5, b=6), b"\5\6"),
        (Slotted(7, 8), b"\7\x08"),
    ]
    derived = Derived.__new__(Derived)
    derived.b = 8
    for one, encoded in [*objects, (derived, b"\x09\x08"), *objects[::-1]]:
        assert writer.frame(one) == b"\0\0\0\2" + encoded
    empty = Slotted.__new__(Slotted)
    empty.b = 1
    for _ in range(2):
        with pytest.raises(AttributeError, match="a"):
            writer.frame(empty)
    seen = weakref.ref(one := Slotted(1, 1))
    writer.frame(one)
    del one
    gc.collect()
    assert seen() is None


def test_messages_are_joined() -> None:
    number = FieldWriter(FieldKind.INT16.value, None, None, None)
    view = FieldWriter(FieldKind.VIEW.value, None, None, None)
    writer = MessageWriter([("a", number), ("b", number)])
    assert writer.joined([1, 2], (3, 4)) == writer.frame(1, 3) + writer.frame(2, 4)
    assert writer.joined(iter([]), []) == b""
    with pytest.raises(ValueError, match="shorter than"):
        writer.joined([1, 2], [3])
    with pytest.raises(ValueError, match="1 values for 2 fields"):
        writer.joined([1])
    with pytest.raises(OverflowError):
        writer.joined([1, 2], [3, 2**15])
    with pytest.raises(ValueError, match="record sets"):
        MessageWriter([("a", number), ("b", view)]).joined([1], [b"set"])
    with pytest.raises(ValueError, match=f"more than {MOST_FIELDS} fields"):
        MessageWriter([(str(name), number) for name in range(MOST_FIELDS + 1)])


def test_entries_of_append_times() -> None:
    assert append_entries([], 5, 1) == b""
    assert append_entries([5, 7, 5 + 2**31 - 1], 5, -1) == b"".join(
        ENTRY.pack(relative, -1) for relative in (0, 2, 2**31 - 1)
    )
    for base_offset, offset in [(5, 4), (5, 5 + 2**31), (-(2**63), 2**63 - 1), (2**63 - 1, 0)]:
        with pytest.raises(OverflowError, match=f"begins with {base_offset}: {offset}"):
            append_entries([offset], base_offset, 0)
