"""Positions in memory: what they take there, and what is read of them."""

from random import Random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horolog.protocol.api.pieces import finish
from horolog.storage.directory import position_table
from horolog.storage.directory.position_records import (
    BROKERS,
    COMMIT,
    FORGET,
    FORGET_SOME,
    KEPT,
    NO_EPOCH,
    NOT_KNOWN,
    PositionChange,
    StoredPosition,
    no_position,
)
from horolog.storage.directory.position_table import (
    NAME_BYTES,
    POSITION_BYTES,
    WINDOW_BYTES,
    NameSummary,
    PositionReading,
    PositionTable,
)
from horolog.tests.weights import memory_of


def position(offset: int, topic: str, partition: int, metadata: str) -> StoredPosition:
    return StoredPosition(topic, partition, offset, 1_000 + offset, 2_000 + offset, metadata)


@pytest.mark.parametrize(
    ("names", "per_name", "text_bytes"),
    [(5_000, 1, 0), (5_000, 1, 100), (2_500, 2, 0), (1_000, 6, 10), (20, 700, 0), (10, 100, 4_000)],
)
def test_what_is_counted_covers_the_memory(names: int, per_name: int, text_bytes: int) -> None:
    def made() -> PositionTable:
        table = PositionTable()
        for name in range(names):
            # Each string and number anew, as from a decoder.
            entries = [
                position(name * 1_000_000 + number, "".join("topic"), number, "x" * text_bytes)
                for number in range(per_name)
            ]
            table.apply(PositionChange(COMMIT, f"name-{name}", entries))
        return table

    taken, table = memory_of(made, lambda table: table.size_bytes - 1)
    assert table.size_bytes / 2 < taken < table.size_bytes


class TopicGone(NamedTuple):
    topic: str
    windows: set[str]


NAMES = st.sampled_from(["g", "job"])
TOPICS = st.sampled_from(["a", "b", "a..1479132000000..1h"])
TIMES = st.integers(0, 9)
POSITIONS = st.builds(
    StoredPosition,
    topic=TOPICS,
    partition=st.integers(0, 2),
    offset=st.integers(0, 3),
    timestamp_ms=st.just(-1),
    commit_time_ms=TIMES,
    metadata=st.sampled_from(["", "ü"]),
    retention_ms=st.sampled_from([KEPT, BROKERS, 5]),
    used_ms=st.one_of(st.just(NOT_KNOWN), TIMES),
    leader_epoch=st.just(NO_EPOCH),
    moved_ms=st.one_of(st.just(NOT_KNOWN), TIMES),
)
PLACES = st.builds(no_position, TOPICS, st.integers(0, 2))
CHANGES = st.one_of(
    st.builds(PositionChange, st.just(COMMIT), NAMES, st.lists(POSITIONS, max_size=6)),
    st.builds(PositionChange, st.just(FORGET_SOME), NAMES, st.lists(PLACES, max_size=3)),
    st.builds(PositionChange, st.just(FORGET), NAMES, st.just(())),
    st.builds(TopicGone, TOPICS, st.sets(st.just("a..1479132000000..1h"))),
)
Held = dict[tuple[str, int], StoredPosition]


def changed(held: Held, change: PositionChange) -> Held:
    """The positions under a name after a change."""
    if change.kind == FORGET:
        return {}
    if change.kind == COMMIT:
        return held | {each[:2]: each for each in change.entries}
    gone = {each[:2] for each in change.entries}
    used_ms = max((held[key].used_ms for key in gone & held.keys()), default=-1)
    held = {key: each for key, each in held.items() if key not in gone}
    expiring = sorted(each for each in held.values() if each.retention_ms != KEPT)
    if expiring and used_ms > max(each.used_ms for each in expiring):
        held[expiring[0][:2]] = expiring[0]._replace(used_ms=used_ms)
    return held


def expires_ms(held: Held, retention_ms: int) -> int | None:
    if not held or any(each.retention_ms == KEPT for each in held.values()):
        return None
    longest_ms = max(each.retention_ms or retention_ms for each in held.values())
    return max(each.used_at_ms for each in held.values()) + longest_ms


def size_bytes(name: str, held: Held) -> int:
    if not held:
        return 0
    return (
        NAME_BYTES
        + len(name)
        + sum(
            POSITION_BYTES
            + len(each.metadata.encode())
            + (WINDOW_BYTES + len(each.topic) if ".." in each.topic else 0)
            for each in held.values()
        )
    )


@pytest.fixture(params=[2, position_table.PIECE], ids=["small-pieces", "one-piece"])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position_table, "PIECE", request.param)
    monkeypatch.setattr(position_table, "_CHANGED_AT_ONCE", request.param)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(CHANGES, max_size=12))
def test_what_is_read_is_what_a_dictionary_has(
    piece: None, changes: list[PositionChange | TopicGone]
) -> None:
    table, model = PositionTable(), {"g": Held(), "job": Held()}
    reading = PositionReading(table)
    for change in changes:
        if isinstance(change, TopicGone):
            topics = {change.topic, *change.windows}
            finish(table.forget_topics(change.topic, change.windows))
            for name, held in model.items():
                model[name] = {key: each for key, each in held.items() if key[0] not in topics}
            continue
        grown = table.growth(change.name, change.entries), (len(table), table.size_bytes)
        table.apply(change)
        model[change.name] = changed(model[change.name], change)
        if change.kind == COMMIT and change.entries:
            (more, more_bytes), (count, before_bytes) = grown
            assert (count + more, before_bytes + more_bytes) == (len(table), table.size_bytes)
    for name, held in model.items():
        assert reading.of(name) == sorted(held.values())
        assert reading.expires_ms(name, 7) == expires_ms(held, 7)
        assert reading.is_of_group(name) == any(each.retention_ms != KEPT for each in held.values())
        last_used_ms = max((each.used_at_ms for each in held.values()), default=-1)
        assert reading.last_used_ms(name) == last_used_ms
        assert reading.summary(name) == NameSummary(
            name,
            len(held),
            reading.is_of_group(name),
            max((each.moved_at_ms for each in held.values()), default=-1),
            last_used_ms,
        )
        expiring = [each for each in held.values() if each.retention_ms != KEPT]
        last_ms = max((each.used_ms for each in expiring), default=-1)
        assert finish(table.first_expiring(name)) == (min(expiring, default=None), last_ms)
    topics = {key[0] for held in model.values() for key in held}
    assert finish(table.window_topics("a")) == topics & {"a..1479132000000..1h"}
    assert len(table) == sum(map(len, model.values()))
    assert table.size_bytes == sum(size_bytes(name, held) for name, held in model.items())


@pytest.mark.parametrize("change", ["one", "most", "all", "topic", "used"])
def test_a_change_of_a_large_group_is_made_in_pieces(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(position_table, "PIECE", 10)
    monkeypatch.setattr(position_table, "_CHANGED_AT_ONCE", 10)
    table = PositionTable()
    entries = [position(5, "a", number, "")._replace(retention_ms=5) for number in range(100)]
    table.apply(PositionChange(COMMIT, "g", [entries[0]._replace(used_ms=7), *entries[1:]]))
    pieces = {
        "one": table.apply_in_pieces(PositionChange(FORGET_SOME, "g", [no_position("a", 0)])),
        "most": table.apply_in_pieces(PositionChange(FORGET_SOME, "g", entries[10:])),
        "all": table.apply_in_pieces(PositionChange(FORGET, "g", ())),
        "topic": table.forget_topics("a", ()),
        "used": table.first_expiring("g"),
    }
    # To drop most positions, their places are looked up first.
    assert sum(1 for _ in pieces[change]) >= (18 if change == "most" else 10)
    assert len(table) == {"one": 99, "most": 10, "all": 0, "topic": 0, "used": 100}[change]


@given(
    keys=st.sets(st.tuples(st.sampled_from("abc"), st.integers(0, 30)), max_size=40),
    at_once=st.integers(1, 50),
    random=st.randoms(use_true_random=False),
)
def test_all_positions_are_sorted_in_short_runs(
    keys: set[tuple[str, int]], at_once: int, random: Random
) -> None:
    """One call that sorts a million positions would keep all threads waiting for a second."""
    entries = [position(1, topic, partition, "") for topic, partition in keys]
    random.shuffle(entries)
    table = PositionTable()
    table.apply(PositionChange(COMMIT, "g", entries))
    lengths = [0]

    def noting(values: list[StoredPosition]) -> list[StoredPosition]:
        lengths.append(len(values))
        return sorted(values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(position_table, "_SORTED_AT_ONCE", at_once, raising=False)
        patch.setattr(position_table, "sorted", noting, raising=False)
        assert PositionReading(table).of("g") == sorted(entries)
    assert max(lengths) <= at_once
