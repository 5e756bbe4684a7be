"""The indexes of random logs: always true, complete when closed, and equal when built again."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord
from horolog.testing.logs import LogFolder

from .examples import examples
from .filling import RESTARTS, fill, produce, read_from, search, search_largest, truncate
from .index_rules import (
    assert_closing_entry,
    assert_offset_index_true,
    assert_time_index_true,
    offset_entries,
    state_of,
    time_entries,
    times_by_offset,
)
from .logs import SEGMENT_FILES, log_folder, start_after_close
from .model import Model, Part, SentSet
from .strategies import set_lists, topic_settings_texts


def assert_closed_files(folder: LogFolder) -> None:
    files = folder.content(SEGMENT_FILES)
    bases = [int(name[:20]) for name in files if name.endswith(".log")]
    ends = [*bases[1:], folder.log.log_end_offset]
    for base, end in zip(bases, ends, strict=True):
        log = files[f"{base:020}.log"]
        times = time_entries(files[f"{base:020}.timeindex"], base)
        assert_offset_index_true(log, offset_entries(files[f"{base:020}.index"], base))
        assert_time_index_true(log, times)
        assert_closing_entry(log, times, end)


@examples(60)
@given(topic_settings_texts, set_lists, st.booleans())
def test_closed_indexes_are_true_and_complete_v2_v3_v4(
    overrides: dict[str, str], sets: list[SentSet], roll: bool
) -> None:
    """I-17, I-20."""
    with log_folder(overrides) as folder:
        fill(folder, sets)
        if roll:
            folder.log.appender.roll()
        folder.log.close()
        assert_closed_files(folder)


@examples(60)
@given(topic_settings_texts, set_lists)
def test_rebuilt_indexes_equal_live_ones_v5(overrides: dict[str, str], sets: list[SentSet]) -> None:
    with log_folder(overrides) as folder:
        model = fill(folder, sets)
        live_files = folder.content(SEGMENT_FILES)
        for _ in range(2):
            folder.let_go()
            for path in [*folder.path.glob("*.index"), *folder.path.glob("*.timeindex")]:
                path.write_bytes(b"")
            folder.kill_and_restart(checkpointed=False)
            assert folder.content(SEGMENT_FILES) == live_files
            assert read_from(folder.log, 0) == model.messages


@examples(60)
@given(topic_settings_texts, set_lists)
def test_an_unclean_start_knows_all_that_was_known_v5(
    overrides: dict[str, str], sets: list[SentSet]
) -> None:
    with log_folder(overrides) as folder:
        fill(folder, sets)
        live_files = folder.content(SEGMENT_FILES)
        live = [state_of(segment) for segment in folder.log.segments]
        folder.kill_and_restart(checkpointed=False)
        assert [state_of(segment) for segment in folder.log.segments] == live
        assert folder.content(SEGMENT_FILES) == live_files


DAMAGE = {
    "deleted": lambda path, data: path.unlink(),
    "emptied": lambda path, data: path.write_bytes(b""),
    "cut": lambda path, data: path.write_bytes(data[: len(data) * 2 // 3]),
    "zeroed": lambda path, data: path.write_bytes(bytes(len(data))),
    "zeros behind": lambda path, data: path.write_bytes(data + bytes(96)),
    "garbage behind": lambda path, data: path.write_bytes(data + b"\xff" * 12),
    "reversed": lambda path, data: path.write_bytes(data[::-1]),
}


@examples(60)
@given(topic_settings_texts, set_lists, st.data())
def test_indexes_are_never_needed_nor_believed_v6(
    overrides: dict[str, str], sets: list[SentSet], data: st.DataObject
) -> None:
    with log_folder(overrides) as folder:
        model = fill(folder, sets)
        folder.log.close()
        closed = folder.content(SEGMENT_FILES)
        victims = [path for path in sorted(folder.path.iterdir()) if path.suffix != ".log"]
        for path in data.draw(st.sets(st.sampled_from(victims)), label="files"):
            damage = data.draw(st.sampled_from(sorted(DAMAGE)), label="damage")
            DAMAGE[damage](path, path.read_bytes())
        start_after_close(folder)
        folder.log.prepare()
        assert read_from(folder.log, 0) == model.messages
        for target_ms in model.targets():
            assert search(folder.log, target_ms) == model.find_time(target_ms)
        assert search_largest(folder.log) == model.find_largest()
        folder.log.close()
        assert folder.content(SEGMENT_FILES) == closed


def assert_largest_timestamps(folder: LogFolder) -> None:
    for segment in folder.log.segments:
        times = times_by_offset(segment.log_path.read_bytes())
        largest_ms = max(times.values(), default=-1)
        assert segment.largest_timestamp_ms == largest_ms
        assert_offset_index_true(
            segment.log_path.read_bytes(),
            offset_entries(segment.offset_index.encoded(), segment.base_offset),
        )
        assert_time_index_true(
            segment.log_path.read_bytes(),
            time_entries(segment.time_index.encoded(), segment.base_offset),
        )


cut_rounds = st.lists(
    st.tuples(set_lists, st.floats(0, 1), st.sampled_from(sorted(RESTARTS))),
    min_size=1,
    max_size=3,
)
"""What is appended, where the log is cut then, and how the broker is restarted after that."""


def plain(*times: int) -> SentSet:
    return SentSet((Part(1, Codec.NONE, tuple(NewRecord(b"", timestamp_ms=ms) for ms in times)),))


def wrapped(*times: int) -> SentSet:
    return SentSet((replace(plain(*times).parts[0], codec=Codec.GZIP),))


@examples(80)
@given(topic_settings_texts, cut_rounds, set_lists)
@example(
    overrides={"index.interval.bytes": "0"},
    rounds=[([plain(1), wrapped(2, 2)], 0.7, "clean")],
    last=[plain(3), plain(4), plain(5)],
)
def test_a_log_goes_on_from_a_cut_v7(
    overrides: dict[str, str], rounds: list[tuple[list[SentSet], float, str]], last: list[SentSet]
) -> None:
    with log_folder(overrides) as folder:
        model = Model()
        for sets, share, restart in [*rounds, (last, 1.0, "none")]:
            for sent in sets:
                produce(folder, model, sent)
            truncate(folder, model, int(folder.log.log_end_offset * share))
            RESTARTS[restart](folder)
            folder.log.prepare()
            model.high_watermark = folder.log.high_watermark
            assert_largest_timestamps(folder)
            assert read_from(folder.log, 0) == model.messages
        for target_ms in model.targets():
            assert search(folder.log, target_ms) == model.find_time(target_ms)
