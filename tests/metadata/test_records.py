"""Records and states as bytes: what comes back, and what is refused whole."""

from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.storage.directory.position_records import Position
from horolog.storage.directory.topics import TopicEntry
from horolog.storage.metadata.metadata_state import MetadataState, records_of
from horolog.storage.metadata.records import (
    MAX_PARTITIONS,
    MAX_RECORD_BYTES,
    MAX_SETTINGS,
    VERSION,
    MalformedRecord,
    MetadataRecord,
    PartitionsAdded,
    PositionsCommitted,
    PositionsForgotten,
    PositionsUsed,
    SettingsAltered,
    SomeForgotten,
    TopicCreated,
    TopicDeleted,
    decode_record,
    encode_record,
)
from horolog.storage.metadata.snapshot import MalformedState, decode_state, encode_state

ID = "6lLnpQzLQv6Rlvh8YUXcFA"
NAMES = st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,20}", fullmatch=True)
IDS = st.from_regex(r"[a-zA-Z0-9_-]{21}[AQgw]", fullmatch=True)
SETTINGS = st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3)
INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.integers(1, MAX_PARTITIONS)
GROUPS = st.text(min_size=1, max_size=60)
POSITIONS = st.builds(
    Position,
    *(NAMES, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)),
    *(INT64, INT64, st.text(max_size=9), INT64, INT64, st.integers(-1, 2**31 - 1)),
)
ENTRIES = st.builds(
    TopicEntry,
    name=NAMES,
    topic_id=IDS,
    partitions=PARTITIONS,
    overrides=SETTINGS,
    gaps=st.booleans(),
)
RECORDS: st.SearchStrategy[MetadataRecord] = st.one_of(
    st.builds(TopicCreated, ENTRIES),
    st.builds(PartitionsAdded, NAMES, IDS, PARTITIONS),
    st.builds(SettingsAltered, NAMES, IDS, SETTINGS),
    st.builds(TopicDeleted, NAMES, IDS),
    st.builds(
        PositionsCommitted, GROUPS, st.lists(st.tuples(IDS, POSITIONS), max_size=3).map(tuple)
    ),
    st.builds(PositionsUsed, GROUPS, INT64),
    st.builds(PositionsForgotten, GROUPS),
    st.builds(
        SomeForgotten,
        GROUPS,
        st.lists(st.tuples(IDS, NAMES, st.integers(0, 2**31 - 1)), max_size=3).map(tuple),
    ),
)


@given(RECORDS)
def test_a_record_comes_back(record: MetadataRecord) -> None:
    assert decode_record(encode_record(record)) == record


@given(RECORDS)
def test_a_record_that_is_cut_or_goes_on_is_none(record: MetadataRecord) -> None:
    data = encode_record(record)
    for size in range(len(data)):
        with pytest.raises(MalformedRecord):
            decode_record(data[:size])
    with pytest.raises(MalformedRecord):
        decode_record(data + b"\0")


@given(st.binary(max_size=80))
def test_any_bytes_are_a_record_or_refused(data: bytes) -> None:
    try:
        record = decode_record(data)
    except MalformedRecord:
        return
    assert decode_record(encode_record(record)) == record


POSITION = ["t", ID, 0, 1, -1, -1, 5, "", -1, -1]
WRONG: list[tuple[Any, str]] = [
    (7, "not a list"),
    ([VERSION], "not a list"),
    (["1", "deleted", "t", ID], "begins with version"),
    ([3, "deleted", "t", ID], "version 3, this Horolog knows 1 to 2"),
    ([2, "deleted", "t", ID], "version 2, and its kind is 'deleted'"),
    ([VERSION, "some gone", "g", []], "version 1, and its kind is 'some gone'"),
    ([2, ["some gone"], "g", []], "version 2, and its kind is"),
    ([0, "deleted", "t", ID], "version 0"),
    ([VERSION, "renamed", "t", ID], "kind is 'renamed'"),
    ([VERSION, ["deleted"], "t", ID], "which is none"),
    ([VERSION, "deleted", "t"], "1 fields"),
    ([VERSION, "deleted", "t", ID, 1], "3 fields"),
    ([VERSION, "deleted", "t/..", ID], "not a topic name"),
    ([VERSION, "deleted", b"t", ID], "not a topic name"),
    ([VERSION, "deleted", "t", "short"], "not a topic id"),
    ([VERSION, "topic", "t", ID, 0, {}, False], f"1 to {MAX_PARTITIONS}"),
    ([VERSION, "topic", "t", ID, MAX_PARTITIONS + 1, {}, False], f"1 to {MAX_PARTITIONS}"),
    ([VERSION, "topic", "t", ID, True, {}, False], f"1 to {MAX_PARTITIONS}"),
    ([VERSION, "topic", "t", ID, 1, [], False], "settings"),
    ([VERSION, "topic", "t", ID, 1, {"a": 1}, False], "'a'"),
    ([VERSION, "topic", "t", ID, 1, {"a": "x" * 70_000}, False], "'a'"),
    ([VERSION, "topic", "t", ID, 1, {}, 0], "gaps"),
    (
        [VERSION, "topic", "t", ID, 1, {str(n): "" for n in range(MAX_SETTINGS + 1)}, False],
        f"up to {MAX_SETTINGS}",
    ),
    ([VERSION, "positions", "", []], "0 bytes"),
    ([VERSION, "positions", "g" * 256, []], "256 bytes"),
    ([VERSION, "positions", "g", {}], "not a list"),
    ([VERSION, "positions", "g", [POSITION[:-1]]], "list of 10"),
    ([VERSION, "positions", "g", [[*POSITION[:2], -1, *POSITION[3:]]]], "partition -1"),
    ([VERSION, "positions", "g", [[*POSITION[:3], -5, *POSITION[4:]]]], "offset -5"),
    ([VERSION, "positions", "g", [[*POSITION[:4], 2**63, *POSITION[5:]]]], "2**63-1"),
    ([VERSION, "positions", "g", [[*POSITION[:7], b"", -1, -1]]], "text"),
    ([VERSION, "used", "g", 2**63], "64 bits"),
    ([VERSION, "used", "g", 1.5], "64 bits"),
    ([VERSION, "forgotten", 5], "group"),
    ([2, "some gone", 5, []], "group"),
    ([2, "some gone", "g", {}], "not a list"),
    ([2, "some gone", "g", [["t", ID]]], "list of 3"),
    ([2, "some gone", "g", [["t", ID, -1]]], "partition -1"),
    ([2, "some gone", "g", [["t", ID, True]]], "partition True"),
    ([2, "some gone", "g", [["t", "short", 0]]], "not a topic id"),
]


@pytest.mark.parametrize(("fields", "said"), WRONG, ids=lambda each: str(each)[:40])
def test_what_is_wrong_is_told(fields: Any, said: str) -> None:
    with pytest.raises(MalformedRecord) as refused:
        decode_record(msgpack.packb(fields))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xdd\xff\xff\xff\xff", id="a-list-of-four-billion"),
        pytest.param(b"\x93\x01\xdb\xff\xff\xff\xff", id="a-text-of-four-gigabytes"),
        pytest.param(b"\x91" * 100_000, id="lists-in-lists"),
        pytest.param(b"\x94\x01\xa7deleted\xa1\xff\xa1\xff", id="no-utf-8"),
        pytest.param(b"x" * (MAX_RECORD_BYTES + 1), id="giant"),
        pytest.param(None, id="nothing"),
    ],
)
def test_what_claims_much_costs_nothing(data: bytes | None) -> None:
    with pytest.raises(MalformedRecord):
        decode_record(data)


def test_the_largest_is_taken() -> None:
    beside = len(encode_record(PositionsCommitted("g", [(ID, Position("t", 0, 1, -1, 5, ""))])))
    text = "x" * (MAX_RECORD_BYTES - beside - 4)
    record = PositionsCommitted("g", ((ID, Position("t", 0, 1, -1, 5, text)),))
    data = encode_record(record)
    assert len(data) == MAX_RECORD_BYTES
    assert decode_record(data) == record


def some_state() -> MetadataState:
    state = MetadataState()
    state.apply(TopicCreated(TopicEntry(name="t", topic_id=ID, partitions=300)))
    for group in ("g", "h"):
        positions = [(ID, Position("t", number, number, -1, 5, "x")) for number in range(250)]
        state.apply(PositionsCommitted(group, positions))
    return state


def state_bytes(offset: int, state: MetadataState) -> bytes:
    table = state.positions
    held = ((name, table.of(name)) for name in table.names())
    return b"".join(encode_state(offset, records_of(state.topics.values(), held)))


def test_a_state_comes_back() -> None:
    state = some_state()
    offset, again = decode_state([state_bytes(17, state)])
    assert offset == 17
    assert again.topics == state.topics
    assert again.positions.names() == state.positions.names()
    assert again.positions.of("h") == state.positions.of("h")
    assert again.positions.size_bytes == state.positions.size_bytes


def test_a_position_without_its_topic_is_left_out() -> None:
    state = some_state()
    held = [("g", [Position("other", 0, 1, -1, 5, ""), Position("t", 0, 1, -1, 5, "")])]
    records = list(records_of(state.topics.values(), held))
    assert records[-1] == PositionsCommitted("g", ((ID, Position("t", 0, 1, -1, 5, "")),))


def test_a_state_that_is_not_whole_is_none() -> None:
    data = state_bytes(17, some_state())
    for size in [*range(200), *range(200, len(data), 97), len(data) - 1]:
        with pytest.raises(MalformedState):
            decode_state([data[:size]])
    with pytest.raises(MalformedState):
        decode_state([data + b"\0" * 9])


@given(st.data())
def test_a_bit_that_flips_is_noticed(data: st.DataObject) -> None:
    whole = bytearray(state_bytes(17, some_state()))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(MalformedState):
        decode_state([bytes(whole)])


def test_a_record_that_does_not_fit_says_nothing() -> None:
    state = MetadataState()
    entry = TopicEntry(name="t", topic_id=ID, partitions=2)
    other = ID[:-1] + "Q"
    assert state.apply(TopicCreated(entry)) == "t"
    assert state.apply(TopicCreated(replace(entry, topic_id=other))) is None
    assert state.apply(PartitionsAdded("t", other, 5)) is None
    assert state.apply(PartitionsAdded("t", ID, 2)) is None
    assert state.apply(SettingsAltered("t", other, {"a": "b"})) is None
    assert state.apply(TopicDeleted("t", other)) is None
    assert state.apply(TopicDeleted("u", ID)) is None
    assert state.topics == {"t": entry}


def test_a_position_is_of_a_topic_s_id() -> None:
    """decision of section 1: another topic of that name has no position."""
    state = MetadataState()
    other = ID[:-1] + "Q"
    entry = TopicEntry(name="t", topic_id=ID, partitions=2)
    position = Position("t", 1, 5, -1, 5, "")
    state.apply(PositionsCommitted("g", [(ID, position)]))
    assert state.positions.of("g") == []
    state.apply(TopicCreated(entry))
    state.apply(PositionsCommitted("g", [(other, position), (ID, position._replace(partition=2))]))
    assert state.positions.of("g") == []
    state.apply(PositionsCommitted("g", [(ID, position)]))
    assert state.positions.of("g") == [position]
    state.apply(TopicDeleted("t", ID))
    state.apply(TopicCreated(replace(entry, topic_id=other)))
    assert state.positions.of("g") == []
