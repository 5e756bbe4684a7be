"""Sets that are appended together end up as if each had been appended by itself."""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.errors import CodedError, StorageError
from horolog.protocol.records.latency import LatencyCounts
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.storage.log import appender
from horolog.storage.log.admitted import Appended
from horolog.storage.log.appender import ALONE_MAX
from horolog.testing.logs import LogFolder, by_set

from .examples import examples
from .index_rules import state_of
from .logs import log_folder
from .model import SentSet
from .strategies import sent_sets, set_lists, topic_settings_texts

BROKEN = [b"", b"\0" * 30, b"\0" * 11 + b"\x0d" + b"\x01" * 40]
"""Nothing, half a message, and a message that is refused."""

CUT = [b"", b"\0" * 11 + b"\x0d" + b"\x01" * 20, b"\0" * 9]
"""Nothing, and two beginnings of messages."""

sendings = set_lists.flatmap(
    lambda sets: st.tuples(
        st.just([bytes(sent.encoded()) for sent in sets]),
        st.lists(st.tuples(st.integers(0, 30), st.sampled_from(BROKEN)), max_size=3),
    )
).map(lambda drawn: _with_broken(*drawn))
"""Sets as they arrive, some of them refused."""


def _with_broken(sets: list[bytes], broken: Sequence[tuple[int, bytes]]) -> list[bytes]:
    for place, data in broken:
        sets.insert(place, data)
    return sets


def one_by_one(folder: LogFolder, sets: Sequence[bytes]) -> list[Appended | Exception]:
    outcomes: list[Appended | Exception] = []
    for data in sets:
        try:
            outcomes.append(folder.log.appender.append(bytearray(data)))
        except CodedError as error:
            outcomes.append(error)
    return outcomes


@contextmanager
def no_fast_path() -> Iterator[None]:
    """Each set is admitted by itself, as where the kernel was not compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appender, "ALONE_MAX", 0)
        yield


def told(outcome: Appended | Exception) -> object:
    """An outcome, comparable; how long a conversion took differs from time to time."""
    if isinstance(outcome, Appended):
        conversion = outcome.conversion
        return (
            (list(outcome.first_offsets), outcome.last_offset, outcome.append_time_ms),
            (outcome.count, outcome.size_bytes, outcome.latency, outcome.rolled),
            conversion and (conversion.magic, conversion.messages, conversion.size_bytes),
        )
    assert isinstance(outcome, CodedError)
    return outcome.code, outcome.message


def told_together(each: Sequence[Appended]) -> object:
    """Outcomes of several sets, as that of all of them."""
    if len(each) == 1:
        return told(each[0])
    latency = LatencyCounts()
    for outcome in each:
        assert outcome.latency is not None
        assert (outcome.rolled, outcome.conversion) == (None, None)
        assert outcome.append_time_ms == each[0].append_time_ms
        latency.add(outcome.latency)
    return (
        ([outcome.first_offset for outcome in each], each[-1].last_offset, each[0].append_time_ms),
        (sum(one.count for one in each), sum(one.size_bytes for one in each), latency, None),
        None,
    )


def check_outcomes(
    outcomes: Sequence[Appended | Exception], each: Sequence[Appended | Exception]
) -> int:
    """Outcomes of sets that were appended together say what those of each of them say; gives how
    many were appended with others."""
    done = together = 0
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            assert told(outcome) == told(each[done])
            done += 1
            continue
        sets = len(outcome.first_offsets)
        expected = each[done : done + sets]
        assert told(outcome) == told_together([o for o in expected if isinstance(o, Appended)])
        together += sets if sets > 1 else 0
        done += sets
    assert done == len(each)
    return together


def known_of(folder: LogFolder) -> object:
    """The files, and what is known in memory."""
    log = folder.log
    return (
        folder.content(),
        (log.log_start_offset, log.log_end_offset, log.high_watermark, log.recovery_point),
        [state_of(segment) for segment in log.segments],
        list(folder.events.named("segment_rolled")),
    )


@examples(150)
@given(topic_settings_texts, sendings, st.integers(0, 10), st.booleans())
def test_files_and_outcomes_are_the_same(
    overrides: dict[str, str], sets: list[bytes], alone: int, restarted: bool
) -> None:
    """Behind what was appended before, and in a log that was closed and opened again. The fast path
    stores what plain admission does."""
    with log_folder(overrides) as each, log_folder(overrides) as gathered:
        for folder in (each, gathered):
            one_by_one(folder, sets[:alone])
            if restarted:
                folder.restart()
            folder.clock.step(-3)
        with no_fast_path():
            expected = one_by_one(each, sets[alone:])
        outcomes = gathered.log.appender.append_sets([bytearray(data) for data in sets[alone:]])
        check_outcomes(outcomes, expected)
        assert known_of(gathered) == known_of(each)
        assert len(gathered.events.named("clock_behind_log")) == len(
            each.events.named("clock_behind_log")
        )
        one_by_one(each, sets[:1])
        gathered.log.appender.append_sets([bytearray(data) for data in sets[:1]])
        assert known_of(gathered) == known_of(each)


@examples(200)
@given(
    topic_settings_texts,
    set_lists,
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from(CUT)), max_size=3),
    st.integers(1, 10),
)
def test_sets_appended_as_one_are_as_if_appended_one_by_one(
    overrides: dict[str, str], sent: list[SentSet], broken: list[tuple[int, bytes]], alone: int
) -> None:
    """As many as are usual at a time; those are that would be admitted together."""
    sets = _with_broken([bytes(each.encoded()) for each in sent], broken)
    with log_folder(overrides) as each, log_folder(overrides) as gathered:
        for folder in (each, gathered):
            one_by_one(folder, sets[:alone])
            folder.clock.step(3)
        before = known_of(gathered)
        usual = gathered.usual(sets[alone:])
        assert known_of(gathered) == before
        outcomes = gathered.log.appender.append_sets([bytearray(data) for data in sets[alone:]])
        expected = one_by_one(each, sets[alone:])
        together = check_outcomes(outcomes, expected)
        if usual:
            first = outcomes[0]
            assert isinstance(first, Appended)
            assert len(first.first_offsets) == usual
            assert together >= (usual if usual > 1 else 0)
        assert known_of(gathered) == known_of(each)


@pytest.mark.usefixtures("fast_path")
def test_a_message_that_lies_in_two_sets_is_in_neither() -> None:
    """Joined they would be good."""
    whole = bytes(build_set([NewRecord(b"value", timestamp_ms=1)]))
    with log_folder({}) as folder:
        folder.log.appender.append(whole)
        assert folder.usual([whole[:20], whole[20:] + whole]) == 0
        assert folder.usual([whole + whole[:20], whole[20:]]) == 0
        assert folder.usual([whole, b"", whole]) == 1
        (together,) = folder.log.appender.append_sets([whole, whole + whole, whole])
        assert isinstance(together, Appended)
        assert together.first_offsets == [1, 2, 4]


@pytest.mark.usefixtures("fast_path")
@pytest.mark.parametrize(("unusual", "together"), [(1, 3), (ALONE_MAX - 1, 3), (ALONE_MAX, 1)])
def test_unusual_sets_are_admitted_alone_in_their_place(unusual: int, together: int) -> None:
    """And those around them as many at a time as there are, unless most are unusual."""
    plain = bytes(build_set([NewRecord(b"value", timestamp_ms=1)]))
    wrapped = bytes(build_set([NewRecord(b"value", timestamp_ms=1)], codec=Codec.GZIP))
    with log_folder({}) as folder, log_folder({}) as other:
        for each in (folder, other):
            each.log.appender.append(plain)
        sets = [plain, plain, *[wrapped] * unusual, plain, plain, plain]
        outcomes = folder.log.appender.append_sets(sets)
        taken = [len(one.first_offsets) for one in outcomes if isinstance(one, Appended)]
        assert taken == [2, *[1] * unusual, *[together] * (3 // together)]
        one_by_one(other, sets)
        assert known_of(folder) == known_of(other)


def test_a_failed_write_is_raised_for_all_and_takes_all() -> None:
    whole = bytes(build_set([NewRecord(b"value", timestamp_ms=1)]))
    with log_folder({}) as folder:
        folder.log.appender.append(whole)
        before = known_of(folder)
        folder.files.fail("pwrite", errno.ENOSPC, name=".log", written=40)
        outcomes = folder.log.appender.append_sets([whole, whole])
        assert len(outcomes) == 2
        for outcome in outcomes:
            assert isinstance(outcome, StorageError)
            assert "could not be written" in outcome.message
        assert known_of(folder) == before


faults = st.tuples(
    st.sampled_from(["pwrite", "pwrite", "open"]),
    st.sampled_from([errno.ENOSPC, errno.EIO]),
    st.sampled_from([".log", ".log", ".index", ".timeindex", ".appendtime"]),
    st.integers(0, 4),
    st.integers(0, 50),
)


@examples(150)
@given(topic_settings_texts, sendings, faults)
def test_a_failed_write_takes_its_sets_and_no_others(
    overrides: dict[str, str], sets: list[bytes], fault: tuple[str, int, str, int, int]
) -> None:
    """What the log holds then is what it holds when only the other sets are appended."""
    kind, error, name, passing, written = fault
    with log_folder(overrides) as folder, log_folder(overrides) as other:
        folder.files.fail(kind, error, name=name, passing=passing, written=written)
        outcomes = by_set(folder.log.appender.append_sets([bytearray(data) for data in sets]))
        folder.files.heal()
        taken = [
            data
            for data, outcome in zip(sets, outcomes, strict=True)
            if isinstance(outcome, Appended) and outcome.count
        ]
        one_by_one(other, taken)
        assert folder.stored() == other.stored()
        assert folder.log.log_end_offset == other.log.log_end_offset
        offsets = [o.first_offset for o in outcomes if isinstance(o, Appended) and o.count]
        assert offsets == sorted(set(offsets))
        if folder.log.failure is None:
            for each in (folder, other):
                one_by_one(each, taken[:1])
            assert folder.stored() == other.stored()
        live = folder.content((".log",))
        folder.kill_and_restart(checkpointed=False)
        assert folder.content((".log",)) == live


@examples(60)
@given(topic_settings_texts, st.lists(sent_sets, min_size=2, max_size=8))
def test_a_disk_that_fails_leaves_everything_as_it_was(
    overrides: dict[str, str], sets: list[SentSet]
) -> None:
    """All sets are told, and the first write of the next ones goes where it would have gone."""
    overrides = overrides | {"segment.bytes": "1000000", "segment.index.bytes": "100000"}
    overrides["segment.ms"] = str(2**63 - 1)
    encoded = [bytes(sent.encoded()) for sent in sets]
    with log_folder(overrides) as folder, log_folder(overrides) as other:
        for each in (folder, other):
            one_by_one(each, encoded[:1])
        before = known_of(folder)
        folder.files.fail("pwrite", errno.ENOSPC, name=".log", written=40)
        outcomes = folder.log.appender.append_sets([bytearray(data) for data in encoded])
        assert known_of(folder) == before
        assert all(isinstance(outcome, StorageError) for outcome in outcomes)
        assert len(set(map(id, outcomes))) == 1
        folder.log.appender.append_sets([bytearray(data) for data in encoded])
        one_by_one(other, encoded)
        assert known_of(folder) == known_of(other)
