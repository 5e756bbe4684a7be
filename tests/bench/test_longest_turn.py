"""The benchmark of the longest turn: every API is covered, and a handler that hogs is seen.

How long turns are is not judged here: `python -m horolog.bench longest_turn` does that.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from horolog.bench.figure import BoundedFigure, measure
from horolog.bench.guard.largest import Size
from horolog.bench.longest_turn import longest_turn
from horolog.bench.watched_broker import Turn, TurnWatch
from horolog.protocol.api.registry import APIS

SMALL = Size(values=12, frame_bytes=1_000, partitions=2, topics=1, rules=2)


def test_every_api_of_both_encodings_is_measured() -> None:
    """Decision 51: of each kind the largest request, from a principal with rights and without."""
    names = [figure.name for figure in longest_turn(SMALL, rounds=1)]
    for native, spoken in ((True, "native"), (False, "kafka")):
        expected = {
            f"longest_turn.{spoken}.{api.name}"
            for api in APIS.values()
            if api.versions(native=native)
        }
        found = [name for name in names if name.startswith(f"longest_turn.{spoken}.")]
        assert set(found) == expected
        assert len(found) == 2 * len(expected)


class Loop:
    """A loop with a clock of its thread that handlers move."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.ready: deque[Callable[[], None]] = deque()

    def call_later(self, _: float, call: Callable[[], None]) -> None:
        self.ready.append(call)

    def work(self, seconds: float) -> None:
        def handler() -> None:
            self.seconds += seconds

        self.ready.append(handler)

    def turn(self) -> None:
        for _ in range(len(self.ready)):
            self.ready.popleft()()


def test_a_handler_that_hogs_the_loop_is_the_longest_turn() -> None:
    loop = Loop()
    watch = TurnWatch(
        loop.call_later,
        thread_seconds=lambda: loop.seconds,
        process_seconds=lambda: 2 * loop.seconds,
    )
    watch.start()
    for seconds in (0.002, 0.25, 0.003):
        loop.work(seconds)
        loop.turn()
    assert watch.take() == pytest.approx(Turn(0.25, 0.5))
    loop.work(0.001)
    loop.turn()
    assert watch.take() == pytest.approx(Turn(0.001, 0.002)), "since it was taken last"


def test_a_figure_above_its_limit_fails_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    within = BoundedFigure("longest_turn.kafka.fetch", 0.04, "s", limit=0.05)
    above = replace(within, name="longest_turn.kafka.produce", value=0.06)
    results = tmp_path / "bench.json"
    assert measure([], ["longest_turn"], lambda _: [within], results) == 0
    assert measure([], ["longest_turn"], lambda _: [within, above], results) == 1
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed if "ABOVE 0.05" in line] == [above.name]
