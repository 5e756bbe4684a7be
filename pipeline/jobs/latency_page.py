"""Renders a latency report as an HTML page with a picture and a table for each topic, or draws one
picture: SVG, or PNG by matplotlib (extra `plot`)."""

from collections.abc import Iterable, Sequence
from datetime import UTC, timedelta
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Final

from ...protocol.errors import HorologError
from ...times import EPOCH, format_time
from ..java import pip_install
from .latency import Latencies, LatencyReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE: Final = (1200, 660)
"""Width and height in pixels."""

_DPI: Final = 120
_FEW: Final = 60
"""Number of windows up to which each point gets a marker: a single point makes no line."""
_DAY_MS: Final = 86_400_000
_UNITS: Final = ((1_000, 1, "ms"), (120_000, 1_000, "s"), (7_200_000, 60_000, "min"))

_WIDTH: Final = 860
_HEIGHT: Final = 300
_LEFT: Final = 72
_RIGHT: Final = 16
_TOP: Final = 34
_PLOT: Final = 170
"""Height of the chart of latencies."""
_BARS_TOP: Final = 222
_BARS: Final = 40
"""Height of the chart of message counts."""

LINES: Final = (
    ("p50", "#2b7a78", "p50_ms"),
    ("p95", "#3a6ea5", "p95_ms"),
    ("p99", "#8e5ea2", "p99_ms"),
    ("max", "#c0392b", "max_ms"),
)
"""Name, colour and field of each line."""
SKEW: Final = "#e08e0b"
BAR: Final = "#c9d3d6"
MOST_POINTS: Final = 2000
"""Maximum number of points in a picture, more than its width in pixels. More windows are joined in
groups, each shown by its worst figures."""

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 900px; color: #222;
  background: #fff; padding: 0 1em; }
table { border-collapse: collapse; margin: .5em 0 2em; }
th, td { padding: .2em .9em; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; }
.worst { font-size: 1.3em; }
"""


class NoMatplotlib(HorologError):
    """matplotlib is not installed. The message says what to do."""


def check_matplotlib() -> None:
    """Raise NoMatplotlib if `report_png` would."""
    try:
        import matplotlib.backends.backend_agg  # noqa: F401
    except ImportError as error:
        raise NoMatplotlib(
            f"a .png file is drawn by matplotlib ({error}), and .svg and .html do without: "
            f"{pip_install('plot')}"
        ) from None


def report_png(report: LatencyReport, topic: str) -> bytes:
    """Draw the picture of one topic as a PNG file of `SIZE`. Raises NoMatplotlib."""
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    written = BytesIO()
    FigureCanvasAgg(report_figure(report, topic)).print_png(written)
    return written.getvalue()


def report_figure(report: LatencyReport, topic: str) -> "Figure":
    """Make matplotlib's figure of one topic: percentiles above, message counts below, over append
    time."""
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
    """Convert epoch milliseconds to matplotlib's unit of time, days."""
    from matplotlib.dates import date2num

    return float(date2num(EPOCH + timedelta(milliseconds=ms)))


def _unit(most_ms: int) -> tuple[int, str]:
    """Return the milliseconds per unit of the axis, and the name of the unit."""
    for limit_ms, per_unit, name in _UNITS:
        if most_ms < limit_ms:
            return per_unit, name
    return 3_600_000, "h"


def report_html(report: LatencyReport) -> str:
    """Render the report as one self-contained HTML document."""
    worst = report.max_latency_ms
    found = "nothing was measured" if worst is None else span_text(worst)
    title = f"Latency of {', '.join(report.topics)}"
    skewed = ""
    if report.skewed:
        skewed = (
            f"<p>{report.skewed} messages were appended before they were created: a clock is "
            "wrong. They count as 0.</p>"
        )
    parts = "".join(_topic_part(report, topic) for topic in report.topics)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f"</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<p>Append time less create time, for messages appended {_stretch(report)}: "
        f"{report.measured} measured, {report.unknown} of which not both times are known.</p>"
        f'<p class="worst">Largest latency of the cluster: <b>{found}</b></p>{skewed}{parts}'
        "</body></html>\n"
    )


def report_svg(report: LatencyReport, topic: str) -> str:
    """Draw the picture of one topic as an SVG document."""
    rows = joined(report.select(topic, of_partition=False, of_window=True), MOST_POINTS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="18" font-weight="bold">{escape(topic)}: append time less create '
        f"time, by {span_text(report.window_ms)}</text>",
    ]
    if rows:
        parts += _chart(rows, report.window_ms)
    else:
        parts.append(f'<text x="{_LEFT}" y="{_TOP + 40}">nothing was measured</text>')
    return "\n".join([*parts, "</svg>\n"])


def joined(rows: Sequence[Latencies], most: int) -> list[Latencies]:
    """Join neighbouring rows until at most `most` are left; each has the worst of its figures."""
    size = -(-len(rows) // most) if rows else 1
    if size == 1:
        return list(rows)
    return [_worst(rows[start : start + size]) for start in range(0, len(rows), size)]


def _worst(rows: Sequence[Latencies]) -> Latencies:
    first = rows[0]
    return Latencies(
        topic=first.topic,
        partition=first.partition,
        start_ms=first.start_ms,
        count=sum(row.count for row in rows),
        p50_ms=max(row.p50_ms for row in rows),
        p95_ms=max(row.p95_ms for row in rows),
        p99_ms=max(row.p99_ms for row in rows),
        max_ms=max(row.max_ms for row in rows),
        skewed=sum(row.skewed for row in rows),
    )


def _chart(rows: Sequence[Latencies], window_ms: int) -> Iterable[str]:
    first_ms = min(row.start_ms or 0 for row in rows)
    last_ms = max(row.start_ms or 0 for row in rows) + window_ms
    top_ms = _round_up(max(max(row.max_ms for row in rows), 1))
    most = max(row.count for row in rows)
    inner = _WIDTH - _LEFT - _RIGHT

    def x(ms: float) -> float:
        return _LEFT + inner * (ms - first_ms) / (last_ms - first_ms)

    def y(ms: float) -> float:
        return _TOP + _PLOT * (1 - ms / top_ms)

    for step in range(5):
        value = top_ms * step / 4
        yield (
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            f'stroke="#e4e4e4"/><text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end" '
            f'fill="#555">{span_text(value)}</text>'
        )
    width = max(x(first_ms + window_ms) - x(first_ms) - 1, 0.5)
    for row in rows:
        start_ms, height = row.start_ms or 0, _BARS * row.count / most
        yield (
            f'<rect x="{x(start_ms):.1f}" y="{_BARS_TOP + _BARS - height:.1f}" '
            f'width="{width:.1f}" height="{height:.1f}" fill="{BAR}"/>'
        )
        if row.skewed:
            middle = x(start_ms + window_ms / 2)
            yield f'<circle cx="{middle:.1f}" cy="{_BARS_TOP - 8}" r="3" fill="{SKEW}"/>'
    for _, colour, field in reversed(LINES):
        points = [(x((row.start_ms or 0) + window_ms / 2), y(getattr(row, field))) for row in rows]
        yield _line(points, colour)
    yield from _labels(first_ms, last_ms, most, any(row.skewed for row in rows))


def _line(points: Sequence[tuple[float, float]], colour: str) -> str:
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    if len(points) == 1:
        (x, y) = points[0]
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>'
    return f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="1.6"/>'


def _labels(first_ms: int, last_ms: int, most: int, skewed: bool) -> Iterable[str]:
    base = _BARS_TOP + _BARS
    yield (
        f'<text x="{_LEFT - 8}" y="{_BARS_TOP + 10}" text-anchor="end" fill="#555">{most}</text>'
        f'<text x="{_LEFT - 8}" y="{base}" text-anchor="end" fill="#555">messages</text>'
        f'<text x="{_LEFT}" y="{base + 18}" fill="#555">{_moment(first_ms)}</text>'
        f'<text x="{_WIDTH - _RIGHT}" y="{base + 18}" text-anchor="end" fill="#555">'
        f"{_moment(last_ms)}</text>"
    )
    keys = [*((name, colour) for name, colour, _ in LINES)]
    if skewed:
        keys.append(("created later than appended", SKEW))
    place = float(_WIDTH - _RIGHT)
    for name, colour in reversed(keys):
        place -= 7 * len(name) + 24
        yield (
            f'<rect x="{place:.0f}" y="9" width="10" height="10" fill="{colour}"/>'
            f'<text x="{place + 14:.0f}" y="18">{name}</text>'
        )


def _topic_part(report: LatencyReport, topic: str) -> str:
    rows = [
        *report.select(topic, of_partition=False, of_window=False),
        *report.select(topic, of_partition=True, of_window=False),
    ]
    heads = ("partition", "messages", "p50", "p95", "p99", "max", "skewed")
    lines = "".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in _cells(row)) + "</tr>" for row in rows
    )
    return (
        f"<h2>{escape(topic)}</h2>{report_svg(report, topic)}<table><thead><tr>"
        + "".join(f"<th>{head}</th>" for head in heads)
        + f"</tr></thead><tbody>{lines}</tbody></table>"
    )


def _cells(row: Latencies) -> tuple[str, ...]:
    return (
        "all" if row.partition is None else str(row.partition),
        str(row.count),
        span_text(row.p50_ms),
        span_text(row.p95_ms),
        span_text(row.p99_ms),
        span_text(row.max_ms),
        str(row.skewed),
    )


def _stretch(report: LatencyReport) -> str:
    start = (
        "from the beginning" if report.from_ms is None else f"from {format_time(report.from_ms)}"
    )
    return f"{start} to {'now' if report.to_ms is None else format_time(report.to_ms)}"


def _moment(ms: int) -> str:
    return format_time(ms).replace("T", " ")[:19]


def _round_up(ms: int) -> int:
    """Return the next of 4, 8, 12, 20, 28, 40, 80 and so on, which divide by four."""
    scale = 1
    while True:
        for number in (4, 8, 12, 20, 28):
            if ms <= number * scale:
                return number * scale
        scale *= 10


def span_text(ms: float) -> str:
    """Format a latency: 350 ms, 4.2 s, 3.5 min, 2.1 h, 12 d."""
    for limit, unit_ms, unit in (
        (1_000, 1, "ms"),
        (120_000, 1_000, "s"),
        (7_200_000, 60_000, "min"),
        (172_800_000, 3_600_000, "h"),
    ):
        if ms < limit:
            return f"{ms / unit_ms:.4g} {unit}"
    return f"{ms / 86_400_000:.4g} d"
