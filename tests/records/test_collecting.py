"""Messages that are collected until they go: what is taken of them, and the places they get."""

from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from horolog.protocol.records.kernel import ByteRoom, Collected

OVERHEAD = 34
"""What a message takes beside its key and value."""

CONTENTS = st.none() | st.binary(max_size=40)


class Waiter:
    """A future, as far as it is used here."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.cancelled = False

    def done(self) -> bool:
        return self.cancelled or bool(self.results)

    def set_result(self, result: Any) -> None:
        assert not self.done()
        self.results.append(result)


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int
    time_ms: int | None
    expired: bool


@given(
    rows=st.lists(st.tuples(CONTENTS, CONTENTS, st.integers(-1, 2**63 - 1)), max_size=20),
    limit_bytes=st.integers(0, 600),
    room_bytes=st.integers(0, 600),
)
@example(rows=[(b"v", None, 1)], limit_bytes=35, room_bytes=600)
@example(rows=[(b"v", None, 1)], limit_bytes=34, room_bytes=600)
@example(rows=[(b"v", None, 1)], limit_bytes=600, room_bytes=35)
@example(rows=[(b"v", None, 1)], limit_bytes=600, room_bytes=34)
def test_a_message_is_taken_where_there_is_room(
    rows: list[tuple[bytes | None, bytes | None, int]], limit_bytes: int, room_bytes: int
) -> None:
    collected, room = Collected(), ByteRoom(room_bytes)
    taken: list[tuple[bytes | None, bytes | None, int, Waiter]] = []
    size_bytes = 0
    for value, key, time_ms in rows:
        waiter = collected.add(value, key, time_ms, limit_bytes, room, Waiter)
        needed_bytes = OVERHEAD + len(value or b"") + len(key or b"")
        assert (waiter is not None) == (size_bytes + needed_bytes <= min(limit_bytes, room_bytes))
        if waiter is not None:
            taken.append((value, key, time_ms, waiter))
            size_bytes += needed_bytes
    columns = (collected.values, collected.keys, collected.times_ms, collected.waiters)
    assert list(zip(*columns, strict=True)) == taken
    assert collected.size_bytes == room.taken_bytes == size_bytes


@pytest.mark.parametrize("value", ["text", 1, bytearray(b"b"), type("Bytes", (bytes,), {})(b"b")])
def test_what_is_no_bytes_is_left_to_a_closer_look(value: Any) -> None:
    collected, room = Collected(), ByteRoom(1000)
    assert collected.add(value, None, 0, 1000, room, Waiter) is None
    assert collected.add(None, value, 0, 1000, room, Waiter) is None
    assert collected.values == []
    assert room.taken_bytes == 0


def test_nothing_is_taken_while_others_wait() -> None:
    collected, room = Collected(), ByteRoom(1000)
    room.held = True
    assert collected.add(b"", None, 0, 1000, room, Waiter) is None
    assert not room.take(0)
    room.held = False
    assert room.take(1000)
    assert not room.take(1)
    assert room.taken_bytes == 1000


def test_a_message_whose_room_is_taken_goes_behind_all_others() -> None:
    collected, waiter = Collected(), Waiter()
    collected.add(b"a", b"k", 5, 1000, ByteRoom(1000), Waiter)
    assert collected.append(b"b", None, 7, 50, waiter) is waiter
    assert (collected.values, collected.keys) == ([b"a", b"b"], [b"k", None])
    assert (collected.times_ms, collected.waiters[1:]) == ([5, 7], [waiter])
    assert collected.size_bytes == OVERHEAD + 2 + 50


@given(
    own_ms=st.lists(st.integers(-1, 3), max_size=10),
    rows=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    base_offset=st.sampled_from([-1, 0, 7, 2**62]),
    append_ms=st.sampled_from([-1, 0, 2**62]),
    expired_before_ms=st.sampled_from([-1, 0, 2, 2**62]),
    cancelled=st.sets(st.integers(0, 9)),
)
def test_each_gets_its_place(
    own_ms: list[int],
    rows: tuple[int, int],
    base_offset: int,
    append_ms: int,
    expired_before_ms: int,
    cancelled: set[int],
) -> None:
    collected, waiters = Collected(), [Waiter() for _ in own_ms]
    for row, (time_ms, waiter) in enumerate(zip(own_ms, waiters, strict=True)):
        waiter.cancelled = row in cancelled
        collected.append(None, None, time_ms, 0, waiter)
    begin, end = rows
    collected.place(begin, end, Place, ("t", 3), base_offset, append_ms, expired_before_ms)
    for row, (time_ms, waiter) in enumerate(zip(own_ms, waiters, strict=True)):
        given_ms = time_ms if append_ms == -1 else append_ms
        offset = -1 if base_offset == -1 else base_offset + row
        expired = -1 < time_ms < expired_before_ms
        place = Place("t", 3, offset, None if given_ms == -1 else given_ms, expired)
        due = begin <= row < end
        assert waiter.results == ([place] if due and row not in cancelled else [])
        assert all(type(result) is Place for result in waiter.results)
        assert (collected.waiters[row] is None) == due


def test_a_place_is_a_tuple() -> None:
    collected: Any = Collected()
    for made_of, target in ((list, ("t", 0)), (tuple, ("t",)), (tuple, ("t", 0, 0))):
        with pytest.raises(TypeError, match="two fields of the target"):
            collected.place(0, 1, made_of, target, 0, -1)
