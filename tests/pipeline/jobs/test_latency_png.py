"""The picture of a latency report as PNG."""

import sys
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from horolog.cli.pipeline.latency import write_report
from horolog.pipeline.jobs.latency import Latencies, LatencyReport
from horolog.pipeline.jobs.latency_page import (
    BAR,
    LINES,
    SIZE,
    SKEW,
    NoMatplotlib,
    check_matplotlib,
    report_figure,
    report_png,
)

if TYPE_CHECKING:  # Half a second of each process of a run, and one of them needs it.
    from matplotlib.axes import Axes

T = 1_479_132_000_000
"""2016-11-14T14:00:00Z"""
MINUTE = 60_000


def report(*minutes: int, scale: int = 1, skewed: int = 0, topic: str = "clicks") -> LatencyReport:
    """A report in which the figures of a minute lie apart by hundreds."""
    rows = tuple(
        Latencies(
            topic,
            None,
            T + minute * MINUTE,
            count=10 + minute,
            p50_ms=100 * scale,
            p95_ms=300 * scale,
            p99_ms=500 * scale,
            max_ms=700 * scale,
            skewed=skewed,
        )
        for minute in minutes
    )
    return LatencyReport((topic,), T, T + 90 * MINUTE, MINUTE, rows, 30, 2)


def colours(picture: bytes) -> set[str]:
    """Those of at least a few pixels."""
    from matplotlib.image import imread

    pixels = (imread(BytesIO(picture), format="png")[:, :, :3] * 255).round().astype(np.int32)
    found, counts = np.unique(pixels @ [0x10000, 0x100, 1], return_counts=True)
    return {f"#{one:06x}" for one in found[counts >= 10]}


def firsts(axes: "Axes") -> list[float]:
    """Where each line begins."""
    return [float(np.asarray(line.get_ydata())[0]) for line in axes.lines]


@pytest.mark.parametrize("minutes", [(3,), (0, 1, 5), tuple(range(80))], ids=len)
def test_a_line_of_its_own_colour_for_each_figure(minutes: tuple[int, ...]) -> None:
    picture = report_png(report(*minutes), "clicks")
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])) == SIZE
    assert {colour for _, colour, _ in LINES} | {BAR} <= colours(picture)


def test_axes_say_what_they_are_and_times_are_in_utc() -> None:
    figure = report_figure(report(0, 30, 59), "clicks")
    upper, lower = figure.axes
    assert upper.get_ylabel() == "latency (ms)"
    assert (lower.get_xlabel(), lower.get_ylabel()) == ("append time (UTC)", "messages")
    legend = upper.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["max", "p99", "p95", "p50"]
    figure.draw_without_rendering()
    ticks = [label.get_text() for label in lower.get_xticklabels()]
    assert {"14:10", "14:30", "14:50"} <= set(ticks)
    assert firsts(upper) == [700, 500, 300, 100]


@pytest.mark.parametrize(
    ("scale", "unit", "highest"),
    [(1, "ms", 700), (10, "s", 7), (1000, "min", 700 / 60), (100_000, "h", 700 / 36)],
)
def test_the_unit_fits_the_largest(scale: int, unit: str, highest: float) -> None:
    upper, _ = report_figure(report(0, 1, scale=scale), "clicks").axes
    assert upper.get_ylabel() == f"latency ({unit})"
    assert max(firsts(upper)) == pytest.approx(highest)


def test_windows_with_a_wrong_clock_are_marked() -> None:
    assert SKEW in colours(report_png(report(0, 1, skewed=2), "clicks"))
    assert SKEW not in colours(report_png(report(0, 1), "clicks"))


def test_nothing_measured() -> None:
    figure = report_figure(report(), "clicks")
    assert [text.get_text() for text in figure.texts][-1] == "nothing was measured"
    assert report_png(report(), "clicks").startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "head"),
    [("x.png", b"\x89PNG"), ("x.svg", b"<svg "), ("x.html", b"<!doctype html>")],
)
def test_the_name_of_the_file_says_what_is_written(tmp_path: Path, name: str, head: bytes) -> None:
    write_report(tmp_path / name, report(0, 1))
    assert (tmp_path / name).read_bytes().startswith(head)


def test_without_matplotlib_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    for attempt in (check_matplotlib, lambda: report_png(report(0), "clicks")):
        with pytest.raises(NoMatplotlib, match=r'pip install ".+\[plot\]"'):
            attempt()
