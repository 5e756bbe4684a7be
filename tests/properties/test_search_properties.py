"""Searches by time against a look at every message."""

from hypothesis import given
from hypothesis import strategies as st

from horolog.testing.logs import LogFolder

from .filling import fill, produce, read_from, search, search_largest
from .logs import log_folder
from .model import Model, SentSet
from .strategies import examples, sent_sets, topic_settings_texts

set_lists = st.lists(sent_sets, min_size=1, max_size=25)


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
