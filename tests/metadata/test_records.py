"""Records and states as bytes: what comes back, and what is refused whole."""

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.pieces import Pieces
from horolog.protocol.api.security.acl_terms import (
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from horolog.protocol.api.security.client_quotas import Quota
from horolog.storage.check.dump import DumpedMessage, dump
from horolog.storage.directory.journal import Cause, Removal
from horolog.storage.directory.position_records import NOT_KNOWN, StoredPosition
from horolog.storage.directory.topics import TopicEntry
from horolog.storage.files import SystemFiles
from horolog.storage.metadata.access_records import (
    HIDDEN,
    IN_RECORD,
    AccessState,
    CredentialsAltered,
    DecoyKeySet,
    MalformedRecord,
    QuotasAltered,
    RulesAdded,
    RulesRemoved,
    StoredCredential,
    StoredRule,
)
from horolog.storage.metadata.metadata_state import MetadataState, records_of
from horolog.storage.metadata.records import (
    MAX_PARTITIONS,
    MAX_RECORD_BYTES,
    MAX_SETTINGS,
    POSITIONS_IN_PIECE,
    VERSION,
    MessagesRemoved,
    MetadataRecord,
    PartitionsAdded,
    PositionsCommitted,
    PositionsForgotten,
    PositionsUsed,
    SettingsAltered,
    SomeForgotten,
    TopicCreated,
    TopicDeleted,
    decode_in_pieces,
    decode_record,
    encode_in_pieces,
    encode_record,
)
from horolog.storage.metadata.snapshot import MalformedState, decode_state, encode_state

from .copies import Copy

R = TypeVar("R")

ID = "6lLnpQzLQv6Rlvh8YUXcFA"
NAMES = st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,20}", fullmatch=True)
IDS = st.from_regex(r"[a-zA-Z0-9_-]{21}[AQgw]", fullmatch=True)
SETTINGS = st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3)
INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.integers(1, MAX_PARTITIONS)
GROUPS = st.text(min_size=1, max_size=60)
POSITIONS = st.builds(
    StoredPosition,
    *(NAMES, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)),
    *(INT64, INT64, st.text(max_size=9), INT64, INT64, st.integers(-1, 2**31 - 1)),
    st.just(-1) | INT64,
)
ENTRIES = st.builds(
    TopicEntry,
    name=NAMES,
    topic_id=IDS,
    partitions=PARTITIONS,
    overrides=SETTINGS,
    gaps=st.booleans(),
)
CREDENTIALS = st.one_of(
    *(
        st.tuples(
            st.text(min_size=1, max_size=9),
            st.just(name),
            st.none()
            | st.builds(
                StoredCredential,
                *(st.binary(min_size=1, max_size=9), st.integers(4096, 16_777_216)),
                *(st.binary(min_size=size, max_size=size),) * 2,
            ),
        )
        for name, size in (("SCRAM-SHA-256", 32), ("SCRAM-SHA-512", 64))
    )
)
RULES = st.lists(
    st.builds(
        StoredRule,
        *(st.text(min_size=1, max_size=9),) * 2,
        *(st.sampled_from(list(terms.__members__)) for terms in (Operation, Permission)),
        *(st.sampled_from(list(terms.__members__)) for terms in (ResourceType, PatternType)),
        st.text(min_size=1, max_size=9),
    ),
    max_size=2,
).map(tuple)
ENTITIES = st.tuples(st.none() | st.text(max_size=9), st.none() | st.text(max_size=9)).filter(
    lambda entity: entity != (None, None)
)
VALUES = st.dictionaries(
    st.sampled_from([each.value for each in Quota]), st.floats(0.5, 2.0**62), max_size=2
)
ACCESS_RECORDS = st.one_of(
    st.builds(DecoyKeySet, st.binary(min_size=32, max_size=32)),
    st.builds(CredentialsAltered, st.lists(CREDENTIALS, max_size=2).map(tuple)),
    st.builds(RulesAdded, RULES),
    st.builds(RulesRemoved, RULES),
    st.builds(QuotasAltered, st.lists(st.tuples(ENTITIES, VALUES), max_size=2).map(tuple)),
)
NUMBERS = st.integers(-1, 2**63 - 1)
REMOVALS = st.lists(
    st.builds(
        Removal,
        *(st.sampled_from([str(cause) for cause in Cause]), st.text(max_size=9), NAMES, IDS),
        *(NUMBERS,) * 9,
    ),
    max_size=2,
).map(tuple)
RECORDS: st.SearchStrategy[MetadataRecord] = st.one_of(
    ACCESS_RECORDS,
    st.builds(TopicCreated, ENTRIES),
    st.builds(PartitionsAdded, NAMES, IDS, PARTITIONS),
    st.builds(SettingsAltered, NAMES, IDS, SETTINGS),
    st.builds(TopicDeleted, NAMES, IDS, REMOVALS),
    st.builds(MessagesRemoved, REMOVALS),
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


@pytest.mark.parametrize("moved_ms", [NOT_KNOWN, 4])
def test_a_large_record_is_written_and_read_in_pieces(moved_ms: int) -> None:
    positions = [
        StoredPosition("t", number, 1, -1, 5, "", moved_ms=moved_ms)
        for number in range(3 * POSITIONS_IN_PIECE + 1)
    ]
    record = PositionsCommitted("g", tuple((ID, each) for each in positions))
    fields = [["t", ID, number, 1, -1, -1, 5, "", -1, -1] for number in range(len(positions))]
    expected = [1, "positions", "g", fields]
    if moved_ms != NOT_KNOWN:
        expected = [5, "recommitted", "g", [[*each, moved_ms] for each in fields]]
    data, pieces = in_pieces(encode_in_pieces(record))
    assert (data, pieces) == (msgpack.packb(expected), 3)
    assert in_pieces(decode_in_pieces(data)) == (record, 3)


def test_a_deletion_of_many_positions_is_written_and_read_in_pieces() -> None:
    numbers = range(3 * POSITIONS_IN_PIECE + 1)
    record = SomeForgotten("g", tuple((ID, "t", number) for number in numbers))
    data, pieces = in_pieces(encode_in_pieces(record))
    expected = [2, "some gone", "g", [["t", ID, number] for number in numbers]]
    assert (data, pieces) == (msgpack.packb(expected), 3)
    assert in_pieces(decode_in_pieces(data)) == (record, 3)


def in_pieces(made: Pieces[R]) -> tuple[R, int]:
    """Return the result, and how often it gave way."""
    pieces = 0
    while True:
        try:
            next(made)
        except StopIteration as end:
            return end.value, pieces
        pieces += 1


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
KEY = b"k" * 32
RULE = ["User:a", "*", "READ", "ALLOW", "TOPIC", "LITERAL", "t"]
WRONG: list[tuple[Any, str]] = [
    (7, "not a list"),
    ([VERSION], "not a list"),
    (["1", "deleted", "t", ID], "begins with version"),
    ([7, "deleted", "t", ID], "version 7, this Horolog knows 1 to 6"),
    ([3, "deleted", "t", ID], "version 3, and its kind is 'deleted'"),
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
    ([VERSION, "positions", "g", [[*POSITION, 5]]], "list of 10"),
    ([VERSION, "recommitted", "g", []], "version 1, and its kind is 'recommitted'"),
    ([5, "recommitted", "g", {}], "not a list"),
    ([5, "recommitted", "g", [5]], "not a list of lists"),
    ([5, "recommitted", "g", [[]]], "list of 10"),
    ([5, "recommitted", "g", [POSITION]], "list of 10"),
    ([5, "recommitted", "g", [[*POSITION, 2**63]]], "last move"),
    ([5, "recommitted", "g", [[*POSITION, "5"]]], "last move"),
    ([VERSION, "used", "g", 2**63], "64 bits"),
    ([VERSION, "used", "g", 1.5], "64 bits"),
    ([VERSION, "forgotten", 5], "group"),
    ([2, "some gone", 5, []], "group"),
    ([2, "some gone", "g", {}], "not a list"),
    ([2, "some gone", "g", [["t", ID]]], "list of 3"),
    ([2, "some gone", "g", [["t", ID, -1]]], "partition -1"),
    ([2, "some gone", "g", [["t", ID, True]]], "partition True"),
    ([2, "some gone", "g", [["t", "short", 0]]], "not a topic id"),
    ([1, "renewed", "t", ID, ID], "version 1, and its kind is 'renewed'"),
    ([4, "renewed", "t", ID, "short"], "not a topic id"),
    ([4, "more adopted", "t", ID, 0], "1 to"),
    ([3, "decoy key", b"x" * 31], "not 32 to 32 bytes"),
    ([3, "credentials", {}], "not a list"),
    ([3, "credentials", [["a"]]], "list of 2 or 6"),
    ([3, "credentials", [["a", "SCRAM-SHA-1"]]], "mechanism 'SCRAM-SHA-1'"),
    ([3, "credentials", [["", "SCRAM-SHA-256"]]], "1 to 255 bytes"),
    ([3, "credentials", [["a", "SCRAM-SHA-256", b"s", 4095, KEY, KEY]]], "4095 iterations"),
    ([3, "credentials", [["a", "SCRAM-SHA-256", b"s", True, KEY, KEY]]], "True iterations"),
    ([3, "credentials", [["a", "SCRAM-SHA-256", b"", 4096, KEY, KEY]]], "1 to 1024 bytes"),
    ([3, "credentials", [["a", "SCRAM-SHA-256", b"s", 4096, KEY, b""]]], "32 to 32 bytes"),
    ([3, "rules", [RULE[:-1]]], "list of 7"),
    ([3, "rules", [[*RULE[:2], "JUGGLE", *RULE[3:]]]], "operation of a rule is 'JUGGLE'"),
    ([3, "rules gone", [[*RULE[:6], ""]]], "1 to 1024 bytes"),
    ([3, "quotas", [[None, None, {}]]], "of no user"),
    ([3, "quotas", [["a", 5, {}]]], "0 to 255 bytes"),
    ([3, "quotas", [["a", None, {"juggling_rate": 1.0}]]], "juggling_rate"),
    ([3, "quotas", [["a", None, {"producer_byte_rate": 1}]]], "producer_byte_rate"),
    ([3, "quotas", [["a", None, {"producer_byte_rate": float("inf")}]]], "inf"),
    ([3, "quotas", [["a", None, {"producer_byte_rate": -1.0}]]], "-1.0"),
    ([3, "quotas", [["a", None, []]]], "not numbers by name"),
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
        pytest.param(msgpack.packb([3, "credentials", [["a", "SCRAM-SHA-256"]]]) + b"x", id="more"),
        pytest.param(None, id="nothing"),
    ],
)
def test_what_claims_much_costs_nothing(data: bytes | None) -> None:
    with pytest.raises(MalformedRecord):
        decode_record(data)


def test_the_largest_is_taken() -> None:
    beside = len(
        encode_record(PositionsCommitted("g", [(ID, StoredPosition("t", 0, 1, -1, 5, ""))]))
    )
    text = "x" * (MAX_RECORD_BYTES - beside - 4)
    record = PositionsCommitted("g", ((ID, StoredPosition("t", 0, 1, -1, 5, text)),))
    data = encode_record(record)
    assert len(data) == MAX_RECORD_BYTES
    assert decode_record(data) == record


def some_state() -> MetadataState:
    state = MetadataState()
    state.apply(TopicCreated(TopicEntry(name="t", topic_id=ID, partitions=300)))
    for group in ("g", "h"):
        positions = [
            (ID, StoredPosition("t", number, number, -1, 5, "x", moved_ms=number % 3 - 1))
            for number in range(250)
        ]
        state.apply(PositionsCommitted(group, positions))
    state.apply(DecoyKeySet(b"d" * 32))
    credential = StoredCredential(b"salt", 4096, KEY, KEY)
    state.apply(CredentialsAltered([("alice", "SCRAM-SHA-256", credential)]))
    state.apply(
        RulesAdded(
            [
                StoredRule(*RULE)._replace(resource_name=str(number))
                for number in range(IN_RECORD + 1)
            ]
        )
    )
    state.apply(QuotasAltered([(("alice", ""), {"producer_byte_rate": 1.5})]))
    return state


def state_bytes(offset: int, state: MetadataState) -> bytes:
    table = state.positions
    held = ((name, table.of(name)) for name in table.names())
    return b"".join(encode_state(offset, records_of(state.topics.values(), held, state.access)))


def test_a_state_comes_back() -> None:
    state = some_state()
    offset, again = decode_state([state_bytes(17, state)])
    assert offset == 17
    assert again.topics == state.topics
    assert again.positions.names() == state.positions.names()
    assert again.positions.of("h") == state.positions.of("h")
    assert again.positions.size_bytes == state.positions.size_bytes
    assert tuple(again.access) == tuple(state.access)
    assert list(again.access.rules) == list(state.access.rules)


@given(st.lists(ACCESS_RECORDS, max_size=9))
def test_users_rules_and_quotas_come_back_from_a_state(records: list[Any]) -> None:
    """Whatever was added and removed, and in the order of the rules."""
    state = MetadataState()
    for record in records:
        state.apply(record)
    again = decode_state([state_bytes(1, state)]).state.access
    assert tuple(again) == tuple(state.access)
    assert list(again.rules) == list(state.access.rules)


def test_the_first_key_of_decoys_stays() -> None:
    state = AccessState().after(DecoyKeySet(b"a" * 32)).after(DecoyKeySet(b"b" * 32))
    assert state.decoy_key == b"a" * 32


def test_dump_shows_no_salts_or_keys(tmp_path: Path) -> None:
    """Also of an entry that is damaged, and of the user alone that it is about."""
    copy = Copy(tmp_path)
    copy.metadata.lead(1)
    credential = StoredCredential(b"secret-salt", 4096, b"secret.." * 4, b"secret.." * 4)
    copy.metadata.append(CredentialsAltered([("alice", "SCRAM-SHA-256", credential)]))
    copy.metadata.append(DecoyKeySet(b"secret.." * 4))
    copy.metadata.append(RulesAdded([StoredRule(*RULE)]))
    copy.log.flusher.flush()
    (path,) = (tmp_path / "metadata-log" / "__metadata-0").glob("*.log")
    stored = path.read_bytes()
    assert stored.count(b"secret") == 13
    shown = [each for each in dump(SystemFiles(), path) if isinstance(each, DumpedMessage)]
    assert [each.value == HIDDEN for each in shown] == [True, True, False]
    assert "secret" not in str(shown)
    path.write_bytes(stored.replace(b"alice", b"alibe"))
    damaged = list(dump(SystemFiles(), path))
    assert "secret" not in str(damaged)
    assert not all(each.crc_ok for each in damaged if isinstance(each, DumpedMessage))


def test_no_text_shows_salts_or_keys() -> None:
    credential = StoredCredential(b"secret-salt", 4096, b"secret" * 5, b"secret" * 5)
    record = CredentialsAltered([("alice", "SCRAM-SHA-256", credential)])
    state = AccessState().after(record).after(DecoyKeySet(b"secret" * 5))
    assert "secret" not in f"{record} {state} {DecoyKeySet(b'secret')}"
    with pytest.raises(MalformedRecord) as refused:
        decode_record(encode_record(record) + b"x")
    assert "secret" not in f"{refused.value!r} {refused.value.__cause__!r}"


def test_a_position_without_its_topic_is_left_out() -> None:
    state = some_state()
    held = [("g", [StoredPosition("other", 0, 1, -1, 5, ""), StoredPosition("t", 0, 1, -1, 5, "")])]
    records = list(records_of(state.topics.values(), held, AccessState()))
    assert records[-1] == PositionsCommitted("g", ((ID, StoredPosition("t", 0, 1, -1, 5, "")),))


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
    position = StoredPosition("t", 1, 5, -1, 5, "")
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
