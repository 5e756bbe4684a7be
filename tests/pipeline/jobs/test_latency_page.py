"""The page and the picture of a latency report."""

import xml.etree.ElementTree as ET

from horolog.pipeline.jobs.latency import Latencies, LatencyReport
from horolog.pipeline.jobs.latency_page import joined, report_html, report_svg

T = 1_479_132_000_000
MINUTE = 60_000
SVG = "{http://www.w3.org/2000/svg}"


def row(minute: int | None = None, partition: int | None = None, **changed: int) -> Latencies:
    figures = {"count": 10, "p50_ms": 20, "p95_ms": 80, "p99_ms": 90, "max_ms": 95, "skewed": 0}
    start_ms = None if minute is None else T + minute * MINUTE
    figures |= changed
    return Latencies("a<b", partition, start_ms, **figures)


def report(*rows: Latencies) -> LatencyReport:
    return LatencyReport(("a<b",), T, T + 10 * MINUTE, MINUTE, rows, 30, 2)


def test_the_picture_has_a_line_for_each_figure_and_a_bar_for_each_window() -> None:
    rows = [row(minute, max_ms=100 * minute) for minute in (0, 1, 3)]
    picture = ET.fromstring(report_svg(report(*rows), "a<b"))
    lines = picture.findall(f"{SVG}polyline")
    assert [len((line.get("points") or "").split()) for line in lines] == [3, 3, 3, 3]
    highest = [
        min(float(point.partition(",")[2]) for point in (line.get("points") or "").split())
        for line in lines
    ]
    assert highest == sorted(highest)  # the largest is drawn first, and lies highest
    bars = [one for one in picture.findall(f"{SVG}rect") if one.get("fill") == "#c9d3d6"]
    assert len(bars) == 3
    texts = [one.text for one in picture.iter(f"{SVG}text")]
    assert texts[0] == "a<b: append time less create time, by 60 s"
    assert "400 ms" in texts
    assert "2016-11-14 14:00:00" in texts
    assert "2016-11-14 14:04:00" in texts


def test_windows_with_a_wrong_clock_are_marked() -> None:
    picture = ET.fromstring(report_svg(report(row(0), row(1, skewed=2), row(2)), "a<b"))
    assert len(picture.findall(f"{SVG}circle")) == 1
    assert (
        len(ET.fromstring(report_svg(report(row(0), row(1)), "a<b")).findall(f"{SVG}circle")) == 0
    )


def test_the_page_has_the_largest_latency_and_a_line_for_each_partition() -> None:
    page = report_html(report(row(), row(partition=0, max_ms=95_000), row(partition=1), row(0)))
    assert "Largest latency of the cluster: <b>95 s</b>" in page
    assert "30 measured, 2 of which not both times are known" in page
    body = page[page.index("<tbody>") : page.index("</tbody>")]
    assert [line.split("<td>")[1] for line in body.split("<tr>")[1:]] == [
        "all</td>",
        "0</td>",
        "1</td>",
    ]
    assert "<h2>a&lt;b</h2>" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_nothing_measured() -> None:
    page = report_html(report())
    assert page.count("nothing was measured") == 2


def test_neighbours_are_joined_as_their_worst() -> None:
    rows = [row(minute, max_ms=100 + minute, skewed=minute) for minute in range(5)]
    assert joined(rows, 5) == rows
    assert joined([], 5) == []
    halves = joined(rows, 3)
    assert [(one.start_ms, one.count, one.max_ms, one.skewed) for one in halves] == [
        (T, 20, 101, 1),
        (T + 2 * MINUTE, 20, 103, 5),
        (T + 4 * MINUTE, 10, 104, 4),
    ]
