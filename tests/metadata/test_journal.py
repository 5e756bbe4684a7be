"""The journal compared with a plain list: joined neighbours, its bounds, and its records."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from horolog.storage.directory import journal as module
from horolog.storage.directory.journal import REMOVAL_BYTES, Cause, Journal, Removal
from horolog.storage.metadata.access_records import AccessState
from horolog.storage.metadata.metadata_state import MetadataState, records_of
from horolog.storage.metadata.records import (
    MessagesRemoved,
    TopicRenewed,
    decode_record,
    encode_record,
)

from .copies import join, removal, topic_id

A, B = topic_id(1), topic_id(2)

REMOVALS = st.builds(
    lambda cause, rule, topic, known, partition, first, length, counted, at_ms: Removal(
        *(cause, rule, topic, known, partition, first, first + length),
        *(length if counted else -1, first - 1, first + length - 1, at_ms, at_ms),
    ),
    st.sampled_from([Cause.RETENTION, Cause.TRIM]),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["t", "u"]),
    st.sampled_from([A, B]),
    st.integers(0, 1),
    st.integers(0, 6),
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 9),
)


EQUAL = [
    removal("t", A, 0, 0),
    removal("t", A, 0, 0, cause=Cause.RETENTION),
    removal("t", A, 0, 0),
    removal("t", A, 0, 2),
]
"""Of two equal entries the later one is joined with the next removal."""


@given(st.lists(REMOVALS, max_size=40))
@example(EQUAL)
def test_it_is_the_plain_list(removals: Sequence[Removal]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_TOPIC_REMOVALS", 4)
        found, plain = Journal(), list[Removal]()
        for each in removals:
            found.add(each)
            join(plain, each, topic_max=4)
            assert list(found) == plain
            assert found.of("t") == [one for one in plain if one.topic == "t"]
            assert found.size_bytes == sum(one.size_bytes for one in plain)
        # Its records make the same journal: a state that is stored, or copied to a follower.
        state = MetadataState()
        for record in records_of((), (), AccessState(), found):
            state.apply(decode_record(encode_record(record)))
        assert list(state.journal) == plain
        # And it goes on in the same way.
        for each in removals[:5]:
            found.add(each)
            state.journal.add(each)
        assert list(state.journal) == list(found)


def test_all_topics_together_are_bounded() -> None:
    journal = Journal(max_bytes=5 * (REMOVAL_BYTES + 10))
    for number in range(20):
        journal.add(removal(f"t{number}", A, 0, 1))
        assert journal.size_bytes <= 5 * (REMOVAL_BYTES + 10)
    assert [each.topic for each in journal] == ["t15", "t16", "t17", "t18", "t19"]
    journal.add(removal("t15", A, 1, 2))
    journal.add(removal("v", A, 0, 1))
    assert [each.topic for each in journal] == ["t17", "t18", "t19", "t15", "v"]


def test_a_full_topic_keeps_what_was_changed_last() -> None:
    journal = Journal()
    for partition in range(1001):
        journal.add(removal("t", A, 0, 1, partition=partition))
    assert len(journal) == 1000
    assert journal.of("t")[0].partition == 1


def test_a_renewed_topic_keeps_its_journal() -> None:
    journal = Journal()
    journal.add(removal("t", A, 0, 3))
    journal.renew("t", A, B)
    journal.add(removal("t", B, 3, 4))
    (joined,) = journal
    assert (joined.topic_id, joined.first_offset, joined.end_offset) == (B, 0, 4)
    assert decode_record(encode_record(TopicRenewed("t", A, B))) == TopicRenewed("t", A, B)


def test_a_repeated_removal_counts_once() -> None:
    journal = Journal()
    for each in (removal("t", A, 0, 5), removal("t", A, 0, 5), removal("t", A, 3, 8)):
        journal.add(decode_record(encode_record(MessagesRemoved((each,)))).removals[0])  # type: ignore[union-attr]
    (joined,) = journal
    assert (joined.end_offset, joined.messages, joined.times) == (8, 8, 2)
