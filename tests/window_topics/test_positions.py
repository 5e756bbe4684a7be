"""Positions in windows, as records of the metadata log: they are of the topic whose messages these
are, and live as long as it does."""

from dataclasses import replace

import pytest

from horolog.storage.directory.position_records import StoredPosition
from horolog.storage.directory.topics import TopicEntry
from horolog.storage.metadata.metadata_state import MetadataState, records_of
from horolog.storage.metadata.records import (
    PositionsCommitted,
    PositionsForgotten,
    SomeForgotten,
    TopicCreated,
    TopicDeleted,
)
from horolog.storage.metadata.snapshot import decode_state, encode_state

ID = "6lLnpQzLQv6Rlvh8YUXcFA"
OTHER_ID = ID[:-1] + "Q"
BASE = TopicEntry(name="clicks", topic_id=ID, partitions=2)
WINDOW = "clicks..20161114T14Z..1h"
IN_WINDOW = StoredPosition(WINDOW, 1, 5, -1, 5, "x")
IN_BASE = StoredPosition("clicks", 1, 7, -1, 5, "")


@pytest.fixture
def state() -> MetadataState:
    state = MetadataState()
    state.apply(TopicCreated(BASE))
    state.apply(PositionsCommitted("g", [(ID, IN_BASE)]))
    return state


def copied(state: MetadataState) -> MetadataState:
    table = state.positions
    held = ((name, table.of(name)) for name in table.names())
    records = records_of(state.topics.values(), held, state.access)
    return decode_state([b"".join(encode_state(1, records))]).state


def test_a_window_has_positions_of_its_own(state: MetadataState) -> None:
    state.apply(PositionsCommitted("g", [(ID, IN_WINDOW)]))
    assert sorted(state.positions.of("g")) == [IN_BASE, IN_WINDOW]
    again = copied(state).positions
    assert sorted(again.of("g")) == [IN_BASE, IN_WINDOW]
    assert again.size_bytes == state.positions.size_bytes
    state.apply(SomeForgotten("g", [(ID, WINDOW, 1)]))
    assert state.positions.of("g") == [IN_BASE]


def test_a_window_of_another_topic_or_partition_has_none(state: MetadataState) -> None:
    no_window = IN_WINDOW._replace(topic="clicks..20161114T14Z..20161114T13Z")
    of_another = IN_WINDOW._replace(topic="views..20161114T14Z..1h")
    refused = [(ID, no_window), (ID, of_another), (ID, IN_WINDOW._replace(partition=2))]
    state.apply(PositionsCommitted("g", [*refused, (OTHER_ID, IN_WINDOW)]))
    assert state.positions.of("g") == [IN_BASE]


def test_they_go_with_the_topic(state: MetadataState) -> None:
    """A later topic of its name has none of them, and no memory is left that they took."""
    views = TopicEntry(name="views", topic_id=OTHER_ID, partitions=1)
    other = StoredPosition("views..20161114T14Z", 0, 1, -1, 5, "")
    state.apply(TopicCreated(views))
    state.apply(PositionsCommitted("h", [(OTHER_ID, other), (ID, IN_WINDOW)]))
    state.apply(TopicDeleted("clicks", ID))
    state.apply(TopicCreated(replace(BASE, topic_id=OTHER_ID)))
    for each in (state, copied(state)):
        assert each.positions.of("g") == []
        assert each.positions.of("h") == [other]
    state.apply(PositionsForgotten("h"))
    assert (len(state.positions), state.positions.size_bytes) == (0, 0)


def test_a_topic_that_comes_under_the_name_of_a_window_has_none(state: MetadataState) -> None:
    state.apply(PositionsCommitted("g", [(ID, IN_WINDOW)]))
    own = TopicEntry(name=WINDOW, topic_id=OTHER_ID, partitions=2)
    state.apply(TopicCreated(own))
    assert state.positions.of("g") == [IN_BASE]
    state.apply(PositionsCommitted("g", [(ID, IN_WINDOW), (OTHER_ID, IN_WINDOW)]))
    state.apply(TopicDeleted("clicks", ID))
    for each in (state, copied(state)):
        assert each.positions.of("g") == [IN_WINDOW]
    state.apply(TopicDeleted(WINDOW, OTHER_ID))
    assert len(state.positions) == 0
