"""Epochs of a log beside a plain list of the epoch of each message; their file is Kafka's."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.storage.log.epoch_history import (
    NO_EPOCH,
    EpochHistory,
    EpochStart,
    MalformedEpochs,
    decode_epochs,
    encode_epochs,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-2.1"

steps = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 4)),
    max_size=8,
)
"""Leaders: by how much the epoch rises, and how many messages each writes."""


def built(leaders: list[tuple[int, int]], alone: int) -> tuple[EpochHistory, list[int]]:
    """The history and the epoch of each message; `alone` were written before the first leader."""
    history, epochs, epoch = EpochHistory(), [NO_EPOCH] * alone, -1
    for rise, messages in leaders:
        epoch += rise
        history = history.assigned(epoch, len(epochs))
        epochs += [epoch] * messages
    return history, epochs


def end_of(epochs: list[int], led: list[int], epoch: int) -> tuple[int, int]:
    """The greatest of the epochs that led that is not above, and where it ends, from the list."""
    found = max([one for one in led if one <= epoch], default=NO_EPOCH)
    later = [at for at, one in enumerate(epochs) if one > found]
    return found, later[0] if later else len(epochs)


@given(steps, st.integers(0, 3))
def test_epochs_are_those_of_the_messages(leaders: list[tuple[int, int]], alone: int) -> None:
    history, epochs = built(leaders, alone)
    assert [history.epoch_at(at) for at in range(len(epochs))] == epochs
    with_messages = sorted({one for one in epochs if one >= 0})
    written = history.cut(len(epochs))
    # Of epochs without a message in front of others nothing is left: they have the same start.
    assert [one.epoch for one in written.starts] == with_messages
    for epoch in range(-1, 30):
        assert written.end_of(epoch, 0, len(epochs)) == end_of(epochs, with_messages, epoch)


@given(steps, st.integers(0, 3), st.data())
def test_cut_and_begun(leaders: list[tuple[int, int]], alone: int, data: st.DataObject) -> None:
    history, epochs = built(leaders, alone)
    end = data.draw(st.integers(0, len(epochs)))
    cut = history.cut(end)
    assert [cut.epoch_at(at) for at in range(end)] == epochs[:end]
    assert all(one.start_offset < end for one in cut.starts)
    begin = data.draw(st.integers(0, end))
    left = cut.begun_at(begin)
    assert [left.epoch_at(at) for at in range(begin, end)] == epochs[begin:end]
    between = left.between(begin, end)
    assert between[0] == (left.epoch_at(begin), begin)
    assert all(begin < one.start_offset < end for one in between[1:])
    assert cut.cut(begin).followed(between, begin, end) == cut or begin == end


@given(steps, st.integers(0, 3), st.data())
def test_epochs_end_within_a_log_that_was_trimmed(
    leaders: list[tuple[int, int]], alone: int, data: st.DataObject
) -> None:
    """Its oldest segment begins at `base`, and the log somewhere in it."""
    history, epochs = built(leaders, alone)
    base = data.draw(st.integers(0, len(epochs)))
    start = data.draw(st.integers(base, len(epochs)))
    end = data.draw(st.integers(start, len(epochs)))
    left = history.cut(end).begun_at(base)
    for asked in range(-1, 30):
        found = left.end_of(asked, start, end)
        later = [at for at in range(start, end) if epochs[at] > asked]
        assert found.end_offset == (later[0] if later else end)
        if held := [one for one in epochs[start:end] if one <= asked]:
            assert found.epoch == max(held)


def test_an_epoch_that_ended_below_the_log_start_is_none_of_the_log() -> None:
    history = EpochHistory((EpochStart(1, 0), EpochStart(2, 10), EpochStart(4, 20)))
    assert history.end_of(1, 10, 30) == (1, 10)
    assert history.end_of(1, 11, 30) == (NO_EPOCH, 11)
    assert history.end_of(3, 11, 30) == (2, 20)
    assert history.end_of(3, 21, 30) == (NO_EPOCH, 21)
    assert history.end_of(0, 11, 30) == (NO_EPOCH, 11)
    assert EpochHistory().end_of(3, 11, 30) == (NO_EPOCH, 30)


@given(steps, st.integers(0, 3), st.data())
def test_a_follower_comes_to_the_same_history(
    leaders: list[tuple[int, int]], alone: int, data: st.DataObject
) -> None:
    history, epochs = built(leaders, alone)
    followed, at = EpochHistory(), 0
    while at < len(epochs):
        times_end = data.draw(st.integers(at + 1, len(epochs)))
        end = data.draw(st.integers(at + 1, times_end))
        followed = followed.followed(history.between(at, times_end), at, end)
        at = end
    assert followed == history.cut(len(epochs))


def test_epochs_that_fall_are_refused() -> None:
    history = EpochHistory((EpochStart(5, 10),))
    with pytest.raises(MalformedEpochs, match="epoch 3"):
        history.followed((EpochStart(3, 20),), 20, 30)
    assert history.followed((EpochStart(3, 10),), 10, 30).starts == (EpochStart(3, 10),)


def test_assigning_takes_away_what_is_not_before_it_as_in_kafka() -> None:
    history = EpochHistory((EpochStart(1, 0), EpochStart(2, 10), EpochStart(4, 20)))
    assert history.assigned(5, 20).starts == ((1, 0), (2, 10), (5, 20))
    assert history.assigned(3, 15).starts == ((1, 0), (2, 10), (3, 15))
    assert history.assigned(2, 30).starts == ((1, 0), (2, 30))
    for epoch, offset in [(-1, 0), (2**31, 0), (0, -1), (0, 2**63)]:
        with pytest.raises(ValueError, match="an epoch is 0 to"):
            history.assigned(epoch, offset)


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("*/*/leader-epoch-checkpoint")), ids=lambda p: p.parts[-3]
)
def test_what_kafka_wrote_is_read_and_written_alike(path: Path) -> None:
    content = path.read_bytes()
    history = decode_epochs(content)
    assert history.starts
    assert encode_epochs(history) == content


def test_there_are_files_of_kafka() -> None:
    assert len(list(GOLDEN.glob("*/*/leader-epoch-checkpoint"))) >= 8


@given(steps, st.integers(0, 3))
def test_what_is_encoded_decodes(leaders: list[tuple[int, int]], alone: int) -> None:
    history, _ = built(leaders, alone)
    assert decode_epochs(encode_epochs(history)) == history


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "line 1", id="empty"),
        pytest.param(b"1\n0\n", "version", id="version"),
        pytest.param(b"0\n", "number of entries", id="no-count"),
        pytest.param(b"0\n2\n0 0\n", "says 2", id="cut"),
        pytest.param(b"0\n1\n0 0\n1 5\n", "says 1", id="longer"),
        pytest.param(b"0\n1\n0\n", "line 3", id="no-offset"),
        pytest.param(b"0\n1\n-1 0\n", "line 3", id="negative"),
        pytest.param(b"0\n1\n2147483648 0\n", "beyond", id="epoch-too-large"),
        pytest.param(b"0\n1\n0 9223372036854775808\n", "beyond", id="offset-too-large"),
        pytest.param(b"0\n2\n1 0\n1 5\n", "does not rise", id="epoch-twice"),
        pytest.param(b"0\n2\n1 5\n2 4\n", "does not rise", id="offset-falls"),
        pytest.param(b"0\n1\n\xff 0\n", "not text", id="not-text"),
    ],
)
def test_malformed_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(MalformedEpochs, match=words):
        decode_epochs(content)


def test_of_epochs_with_one_offset_the_last_counts() -> None:
    assert decode_epochs(b"0\n3\n1 0\n2 5\n4 5\n").starts == ((1, 0), (4, 5))


@given(st.one_of(st.binary(max_size=60), st.text("0123456789 \n-", max_size=60).map(str.encode)))
def test_no_content_makes_decoding_fail_otherwise(content: bytes) -> None:
    try:
        history = decode_epochs(content)
    except MalformedEpochs:
        return
    assert decode_epochs(encode_epochs(history)) == history
