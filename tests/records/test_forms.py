"""Both forms of the walk and the scans, each against the other, on bytes that no sender means.

`test_walk_properties` has each against a slow decoder.
"""

from struct import pack_into

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.records.kernel import (
    Walk,
    reference,
    scan_offset,
    scan_timestamp,
    split_frames,
    walk,
)
from horolog.protocol.records.kernel.terms import Offsets
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.tests.properties.examples import examples

pytestmark = pytest.mark.parametrize("form", ["compiled"], indirect=True)

INT32 = st.sampled_from(
    [-(2**31), -(2**31) + 11, -13, -12, -1, 0, 13, 14, 21, 22, 2**31 - 13, 2**31 - 1]
)
INT64 = st.sampled_from([-(2**63), -1, 0, 1, 2**62, 2**63 - 2, 2**63 - 1])
PLACES = {"offset": 0, "size": 8, "crc": 12, "time": 18, "key": 26, "value": 30}
FIELDS = [name for name in dir(Walk) if not name.startswith("_")]


@st.composite
def spoiled_sets(draw: st.DrawFn) -> bytes:
    """Good messages of which some have a field that means harm, or loose bytes."""
    data = bytearray()
    for number in range(draw(st.integers(1, 5))):
        record = NewRecord(b"v" * draw(st.integers(0, 20)), draw(st.sampled_from([None, b"key"])))
        entry = build_set([record], magic=draw(st.sampled_from([0, 1, 1])), base_offset=number)
        if draw(st.integers(0, 2)) == 0:
            name = draw(st.sampled_from(sorted(PLACES)))
            wide = name in ("offset", "time")
            entry += bytes(8)
            pack_into(">q" if wide else ">i", entry, PLACES[name], draw(INT64 if wide else INT32))
            del entry[-8:]
        data += entry
    for place, byte in draw(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)))):
        data[place % len(data)] = byte
    return bytes(data[: draw(st.one_of(st.just(len(data)), st.integers(0, len(data))))])


@examples(800)
@given(
    data=spoiled_sets(),
    rule=st.sampled_from(list(Offsets)),
    base_offset=st.sampled_from([0, 1, 2**62]),
    check_crc=st.booleans(),
    now_ms=st.sampled_from([-1, 0, 2**63 - 1]),
    interval_bytes=st.sampled_from([-1, 0, 50]),
    target=INT64,
)
def test_both_forms_say_the_same(
    data: bytes,
    rule: Offsets,
    base_offset: int,
    check_crc: bool,
    now_ms: int,
    interval_bytes: int,
    target: int,
) -> None:
    said, left = [], []
    for one in (walk, reference.walk):
        buffer = bytearray(data)
        found = one(
            buffer,
            0,
            len(buffer),
            offsets=rule,
            base_offset=base_offset,
            check_crc=check_crc,
            now_ms=now_ms,
            interval_bytes=interval_bytes,
        )
        marks = [getattr(found.marks, name) for name in found.marks.__slots__]
        said.append({name: getattr(found, name) for name in FIELDS} | {"marks": marks})
        left.append(buffer)
    assert said[0] == said[1]
    assert left[0] == left[1]
    for mine, other in (
        (scan_offset, reference.scan_offset),
        (scan_timestamp, reference.scan_timestamp),
    ):
        assert mine(data, 0, len(data), target) == other(data, 0, len(data), target)


@examples(500)
@given(
    frames=st.lists(st.tuples(st.binary(max_size=20), st.sampled_from([0, 0, 0, 1, 2**31, -1]))),
    cut=st.integers(0, 30),
    most_bytes=st.sampled_from([1, 7, 19, 2**31 - 1]),
)
def test_both_forms_split_frames_alike(
    frames: list[tuple[bytes, int]], cut: int, most_bytes: int
) -> None:
    said = [(content, (len(content) + harm) % 2**32) for content, harm in frames]
    data = bytearray(b"".join(length.to_bytes(4, "big") + content for content, length in said))
    end = max(len(data) - cut, 0)
    whole: list[bytearray] = []
    position = 0
    for content, length in said:
        behind = position + 4 + len(content)
        if behind > end or length != len(content) or not 0 < length <= most_bytes:
            break
        whole.append(bytearray(content))
        position = behind
    left = data[position:end]
    length = int.from_bytes(left[:4], "big", signed=True) if len(left) >= 4 else 0
    if not 0 < length <= min(len(left) - 4, most_bytes):  # else what was harmed is whole by chance
        expected = whole, position, length
        assert split_frames(data, end, most_bytes) == expected
        assert reference.split_frames(data, end, most_bytes) == expected
    view = memoryview(data)
    assert split_frames(view, end, most_bytes) == reference.split_frames(view, end, most_bytes)
    with pytest.raises(IndexError):
        split_frames(data, len(data) + 1, most_bytes)
