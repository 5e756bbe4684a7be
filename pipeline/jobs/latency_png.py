"""The picture of one topic of a latency report as PNG, for where SVG is not shown: drawn by
matplotlib, of the extra `plot`."""

from collections.abc import Sequence
from datetime import UTC, timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Final

from ...protocol.errors import HorologError
from ...times import EPOCH
from ..installing import pip_install
from .latency import Latencies, LatencyReport
from .latency_page import BAR, LINES, MOST_POINTS, SKEW, joined, span_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE: Final = (1200, 660)
"""Width and height in pixels."""

_DPI: Final = 120
_FEW: Final = 60
"""Up to so many windows each is marked: of one alone there would be no line."""
_DAY_MS: Final = 86_400_000
_UNITS: Final = ((1_000, 1, "ms"), (120_000, 1_000, "s"), (7_200_000, 60_000, "min"))


class NoMatplotlib(HorologError):
    """There is no matplotlib to draw with. The message says what to do."""


def check_matplotlib() -> None:
    """Raise NoMatplotlib where `report_png` would."""
    try:
        import matplotlib.backends.backend_agg  # noqa: F401
    except ImportError as error:
        raise NoMatplotlib(
            f"a .png file is drawn by matplotlib ({error}), and .svg and .html do without: "
            f"{pip_install('plot')}"
        ) from None


def report_png(report: LatencyReport, topic: str) -> bytes:
    """The picture of one topic, as a PNG file of the size `SIZE`. Raises NoMatplotlib."""
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    written = BytesIO()
    FigureCanvasAgg(report_figure(report, topic)).print_png(written)
    return written.getvalue()


def report_figure(report: LatencyReport, topic: str) -> "Figure":
    """The same, to be drawn: percentiles above, numbers of messages below, append time to the
    right."""
    from matplotlib.figure import Figure

    rows = joined(report.select(topic, of_partition=False, of_window=True), MOST_POINTS)
    figure = Figure(figsize=(SIZE[0] / _DPI, SIZE[1] / _DPI), dpi=_DPI, layout="constrained")
    figure.suptitle(
        f"{topic}: append time less create time, by {span_text(report.window_ms)}",
        parse_math=False,
    )
    if not rows:
        figure.text(0.5, 0.5, "nothing was measured", ha="center")
        return figure
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(4, 1))
    days = [_day((row.start_ms or 0) + report.window_ms / 2) for row in rows]
    _draw_lines(upper, rows, days)
    lower.bar(days, [row.count for row in rows], width=report.window_ms / _DAY_MS, color=BAR)
    lower.set_ylabel("messages")
    _label_times(lower)
    return figure


def _draw_lines(axes: "Axes", rows: Sequence[Latencies], days: Sequence[float]) -> None:
    per_unit, unit = _unit(max(row.max_ms for row in rows))
    marker = "o" if len(rows) <= _FEW else ""
    for name, colour, field in reversed(LINES):
        values = [getattr(row, field) / per_unit for row in rows]
        axes.plot(days, values, color=colour, label=name, marker=marker, markersize=3)
    skewed = [day for day, row in zip(days, rows, strict=True) if row.skewed]
    if skewed:
        axes.plot(
            skewed,
            [0.0] * len(skewed),
            color=SKEW,
            label="created later than appended",
            linestyle="",
            marker="o",
            clip_on=False,
        )
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"latency ({unit})")
    axes.grid(axis="y", alpha=0.4)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=5, frameon=False)


def _label_times(axes: "Axes") -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(tz=UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
    axes.set_xlabel("append time (UTC)")


def _day(ms: float) -> float:
    """A time in matplotlib's own unit."""
    from matplotlib.dates import date2num

    return float(date2num(EPOCH + timedelta(milliseconds=ms)))


def _unit(most_ms: int) -> tuple[int, str]:
    """How many ms the unit of the axis has, and its name."""
    for limit_ms, per_unit, name in _UNITS:
        if most_ms < limit_ms:
            return per_unit, name
    return 3_600_000, "h"
