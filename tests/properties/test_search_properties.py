"""Searches by time against a look at every message."""

from hypothesis import given
from hypothesis import strategies as st

from horolog.storage.read import reader
from horolog.testing.logs import LogFolder

from .examples import examples
from .filling import fill, produce, read_from, search, search_largest
from .logs import log_folder
from .model import Model, SentSet
from .strategies import set_lists, topic_settings_texts


def assert_searches_agree(folder: LogFolder, model: Model) -> None:
    for target_ms in model.targets():
        assert search(folder.log, target_ms) == model.find_time(target_ms), target_ms
    assert search_largest(folder.log) == model.find_largest()


@examples(80)
@given(topic_settings_texts, set_lists)
def test_search_equals_brute_force_v1(overrides: dict[str, str], sets: list[SentSet]) -> None:
    with log_folder(overrides) as folder:
        model = fill(folder, sets)
        assert_searches_agree(folder, model)
        assert read_from(folder.log, 0) == model.messages


@examples(60)
@given(topic_settings_texts, set_lists, st.data())
def test_search_sees_what_consumers_see_v1(
    overrides: dict[str, str], sets: list[SentSet], data: st.DataObject
) -> None:
    """Below a held high watermark, and from a log start in the middle of a segment or wrapper."""
    with log_folder(overrides) as folder:
        model = Model()
        ends = [0]
        for sent in sets:
            produce(folder, model, sent)
            ends.append(folder.log.log_end_offset)
        held_at = data.draw(st.sampled_from(ends), label="high watermark")
        folder.log.hold_high_watermark(held_at)
        folder.log.log_start_offset = data.draw(st.integers(0, held_at), label="log start")
        model.high_watermark = held_at
        model.log_start_offset = folder.log.log_start_offset
        assert_searches_agree(folder, model)
        assert read_from(folder.log, model.log_start_offset) == model.visible


@examples(60)
@given(topic_settings_texts, set_lists, st.data())
def test_nothing_late_enough_is_before_the_first_listed_offset_v1(
    overrides: dict[str, str], sets: list[SentSet], data: st.DataObject
) -> None:
    """The lists of version 0: exact where segments have times, never past a message otherwise."""
    with log_folder(overrides) as folder:
        model = fill(folder, sets)
        log = folder.log
        bases = {segment.base_offset for segment in log.segments}
        all_timed = all(s.largest_timestamp_ms >= 0 for s in log.segments if s.size_bytes)
        for target_ms in data.draw(st.lists(st.sampled_from(model.targets()), max_size=8)):
            offsets = reader.offsets_before(log, target_ms, 1_000).run()
            exact = model.find_time(target_ms)
            late_from = model.high_watermark if exact is None else exact[0]
            assert sorted(set(offsets), reverse=True) == offsets
            if offsets:
                assert offsets[0] <= late_from
                assert offsets[1:] == sorted((b for b in bases if b < offsets[0]), reverse=True)
            if all_timed and model.messages:
                assert offsets[0] == late_from
            assert reader.offsets_before(log, target_ms, 2).run() == offsets[:2]


@examples(60)
@given(topic_settings_texts, set_lists, set_lists, st.data())
def test_a_search_answers_for_the_log_as_it_was_when_it_began_tc90(
    overrides: dict[str, str], before: list[SentSet], meanwhile: list[SentSet], data: st.DataObject
) -> None:
    with log_folder(overrides) as folder:
        model = fill(folder, before)
        targets = data.draw(st.lists(st.sampled_from(model.targets()), min_size=1, max_size=5))
        expected = [model.find_time(target_ms) for target_ms in targets]
        searches = [reader.find_time(folder.log, target_ms) for target_ms in targets]
        waiting = list(searches)
        for sent in meanwhile:
            produce(folder, model, sent)
            waiting = [under_way for under_way in waiting if not under_way.step()]
        found = [
            under_way.run() if under_way in waiting else under_way.result for under_way in searches
        ]
        assert [f and (f.offset, f.timestamp_ms) for f in found] == expected
