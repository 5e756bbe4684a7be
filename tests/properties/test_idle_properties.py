"""Closing an idle segment changes no answer (decision 41)."""

from hypothesis import given
from hypothesis import strategies as st

from horolog.storage.log.log import Log
from horolog.storage.read import reader
from horolog.storage.read.search import EARLIEST, LATEST

from .examples import examples
from .filling import fill, read_from
from .logs import log_folder
from .model import Model, SentSet
from .strategies import set_lists, topic_settings_texts

limits = st.fixed_dictionaries(
    {
        "retention.ms": st.sampled_from(["-1", "0", "5", "10000"]),
        "retention.bytes": st.sampled_from(["-1", "0", "300", "700", "2000"]),
    }
)


def answers(log: Log, model: Model, now_ms: int) -> list[object]:
    """What there is to ask of a log: each search, each list, every message, every verdict."""
    log.prepare()
    targets = model.targets()
    told: list[object] = [read_from(log, log.log_start_offset), reader.find_largest(log).run()]
    told += [reader.find_time(log, target_ms).run() for target_ms in targets]
    told += [reader.find_append_time(log, target_ms).run() for target_ms in (0, now_ms, now_ms + 1)]
    told += [
        reader.offsets_before(log, target_ms, 100).run()
        for target_ms in (*targets, EARLIEST, LATEST)
    ]
    told += [reader.append_time_ms(log, offset) for offset in range(log.log_end_offset)]
    for at_ms in (now_ms, now_ms + 6, now_ms + 20_000):
        plan = log.expiry.plan_retention(at_ms)
        verdicts = [
            (verdict.base_offset, verdict.delete, verdict.expires_ms)
            for verdict in plan.verdicts
            if verdict.base_offset < log.log_end_offset
        ]
        told.append((verdicts, plan.delete_count))
    return told


@examples(80)
@given(topic_settings_texts, limits, set_lists, st.booleans())
def test_every_answer_is_the_same_before_and_after(
    overrides: dict[str, str], limits: dict[str, str], sets: list[SentSet], restart: bool
) -> None:
    with log_folder({**overrides, "segment.ms": "1000"} | limits) as folder:
        model = fill(folder, sets)
        before_empty = folder.log.segments[-1].size_bytes == 0
        folder.clock.advance(1001)
        now_ms = folder.clock.now_ms()
        before = answers(folder.log, model, now_ms)
        assert folder.log.expiry.roll_if_idle(now_ms) != before_empty
        assert folder.log.segments[-1].size_bytes == 0
        assert answers(folder.log, model, now_ms) == before
        if restart:
            folder.restart()
            assert answers(folder.log, model, now_ms) == before
