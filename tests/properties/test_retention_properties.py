"""Retention takes from the front only, and what it must take."""

from hypothesis import given
from hypothesis import strategies as st

from .examples import examples
from .filling import fill, read_from
from .logs import log_folder
from .model import SentSet
from .retention_rules import retained
from .strategies import recent_sets, sent_sets

limits = st.fixed_dictionaries(
    {
        "retention.ms": st.sampled_from(["-1", "0", "1", "5", "10", "20"]),
        "retention.bytes": st.sampled_from(["-1", "-1", "0", "300", "700", "2000"]),
    }
)
near_and_far = st.one_of(recent_sets, recent_sets, recent_sets, recent_sets, sent_sets)
small_segments = st.fixed_dictionaries({"segment.bytes": st.sampled_from(["200", "400", "700"])})


@examples(80)
@given(
    small_segments,
    limits,
    st.lists(near_and_far, min_size=4, max_size=25),
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from([1.0, 1.0, 0.9, 0.5])), min_size=2),
)
def test_retention_takes_the_oldest_and_keeps_the_rest_v12(
    overrides: dict[str, str],
    limits: dict[str, str],
    sets: list[SentSet],
    passes: list[tuple[int, float]],
) -> None:
    with log_folder(overrides | limits) as folder:
        model = fill(folder, sets)
        log = folder.log
        for later_ms, watermark in passes:
            folder.clock.advance(later_ms)
            held_at = int(log.log_end_offset * watermark)
            log.hold_high_watermark(held_at)
            before = log.segments
            expected = retained(log, log.settings, folder.clock.now_ms())
            plan = log.expiry.maintain(folder.clock.now_ms())
            assert log.log_start_offset == expected.log_start_offset
            assert (log.segments[-1] is not before[-1]) == expected.rolled
            left = [segment for segment in log.segments if segment in before]
            assert left == list(before[len(before) - len(left) :])
            assert plan.delete_count == len(before) - len(left)
            assert log.log_end_offset == len(model.messages)
            log.hold_high_watermark(None)
            model.log_start_offset = log.log_start_offset
            model.high_watermark = log.high_watermark
            assert read_from(log, log.log_start_offset) == model.visible
