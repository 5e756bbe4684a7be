"""What offsets are of, without a broker."""

import json
from typing import Any

import pytest

from horolog.pipeline import planning
from horolog.pipeline.logs import KEY, NO_LOGS, LogId, TopicLogs, logs_from_json
from horolog.pipeline.option_values import OptionError, offsets


@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [
        (LogId("c", "x"), LogId("c", "x"), False),
        (LogId("c", "x"), LogId("c", "y"), True),
        (LogId("c", "x"), LogId("d", "y"), True),
        (LogId("c", "x"), LogId("d", "x"), False),  # a copy of a directory
        (LogId("c", ""), LogId("c", "y"), False),
        (LogId("c", "x"), LogId("d", ""), True),
        (LogId("c", "x"), LogId("", "y"), True),
        (LogId("", "x"), LogId("c", ""), False),
        (LogId(), LogId("c", "x"), False),
        (LogId("c", "x"), LogId(), False),
    ],
)
def test_another_log_is_one_that_is_known_to_be(before: LogId, now: LogId, changed: bool) -> None:
    assert (before.changed("t", now) is not None) == changed


def test_what_is_learned_takes_the_place_of_what_was_known() -> None:
    known = TopicLogs("c", {"a": "1", "b": "2", "left": "3"})
    now = TopicLogs("c", {"a": "9", "new": "4"})
    assert known.learned(["a", "b", "new"], now) == TopicLogs("c", {"a": "9", "b": "2", "new": "4"})
    assert known.learned(["a", "b"], TopicLogs("c")) == TopicLogs("c", {"a": "1", "b": "2"})
    # In another cluster an id of before is nobody's.
    assert known.learned(["a"], TopicLogs("d")) == TopicLogs("d")
    assert NO_LOGS.learned(["a"], now) == TopicLogs("c", {"a": "9"})


def test_offsets_with_what_they_are_of_are_the_same_text_every_time() -> None:
    at = {("b", 10): 1, ("b", 9): 2, ("a", 0): 3}
    one = planning.to_json(at, TopicLogs("c", {"b": "2", "a": "1"}))
    other = planning.to_json(dict(reversed(at.items())), TopicLogs("c", {"a": "1", "b": "2"}))
    assert json.dumps(one) == json.dumps(other)
    assert list(one) == ["a", "b", KEY]
    assert planning.from_json(one) == at
    assert logs_from_json(one) == TopicLogs("c", {"a": "1", "b": "2"})
    assert planning.to_json(at) == {"a": {"0": 3}, "b": {"9": 2, "10": 1}}
    assert offsets("startingOffsets", json.dumps(one)) == (
        {"a": {0: 3}, "b": {9: 2, 10: 1}},
        logs_from_json(one),
    )


@pytest.mark.parametrize(
    "ids", [1, [], {"cluster": 1}, {"topics": []}, {"topics": {"t": 1}}, {"other": {}}]
)
def test_ids_that_no_stream_wrote_are_refused(ids: Any) -> None:
    with pytest.raises(OptionError, match=r"startingOffsets: @ids is .*leave it out"):
        offsets("startingOffsets", json.dumps({"t": {"0": 1}, KEY: ids}))
