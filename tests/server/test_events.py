"""Events become log lines with stable names, and counts; a flood of them does not fill the log."""

import io
import json

import pytest
import structlog

from horolog.protocol.errors import StorageError
from horolog.server.events import BURST, Events
from horolog.server.metrics.figures import Figures
from horolog.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_ms=1_479_144_272_509)


@pytest.fixture
def figures(clock: ManualClock) -> Figures:
    return Figures(clock, 60_000)


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def events(figures: Figures, clock: ManualClock, stream: io.StringIO) -> Events:
    return Events(figures, clock, log_format="json", log_level="info", stream=stream)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_the_event_its_fields_its_level_and_the_clocks_time(
    events: Events, stream: io.StringIO
) -> None:
    events("segment_rolled", topic="a", partition=0, reason="size", base_offset=7)
    assert lines(stream) == [
        {
            "event": "segment_rolled",
            "level": "info",
            "time": "2016-11-14T17:24:32.509Z",
            "topic": "a",
            "partition": 0,
            "reason": "size",
            "base_offset": 7,
        }
    ]


def test_an_expected_error_is_a_sentence(events: Events, stream: io.StringIO) -> None:
    events("log_failed", topic="a", partition=0, error=StorageError("the disk is full"))
    (line,) = lines(stream)
    assert line["level"] == "error"
    assert line["error"] == "KAFKA_STORAGE_ERROR: the disk is full"
    assert "exception" not in line


def test_a_surprise_has_its_traceback(events: Events, stream: io.StringIO) -> None:
    nothing: dict[str, int] = {}
    try:
        nothing["missing"]
    except KeyError as error:
        events("request_failed", api="fetch", error=error)
    (line,) = lines(stream)
    assert "KeyError" in json.dumps(line["exception"])
    assert "test_a_surprise_has_its_traceback" in json.dumps(line["exception"])


def test_a_flood_of_one_event_is_cut_and_counted(
    events: Events, stream: io.StringIO, figures: Figures, clock: ManualClock
) -> None:
    for _ in range(BURST + 1000):
        events("connection_refused", reason="max.connections")
    events("segment_rolled", topic="a", partition=0, reason="size")
    assert len(lines(stream)) == BURST + 1
    assert figures.suppressed_lines == {"connection_refused": 1000}
    clock.advance(1000)
    events("connection_refused", reason="max.connections")
    assert len(lines(stream)) == BURST + 2


def test_what_is_not_logged_is_counted_all_the_same(
    events: Events, figures: Figures, stream: io.StringIO
) -> None:
    for _ in range(BURST * 2):
        events("segment_rolled", topic="a", partition=0, reason="time")
    assert figures.topic("a").rolls == {"time": BURST * 2}


def test_below_the_level_nothing_is_written(
    figures: Figures, clock: ManualClock, stream: io.StringIO
) -> None:
    events = Events(figures, clock, log_format="json", log_level="error", stream=stream)
    events("connection_dropped", peer="x", reason="protocol", cause="y")
    events("task_failed", task="retention", error=RuntimeError("no"))
    assert [line["event"] for line in lines(stream)] == ["task_failed"]
    assert figures.failed_passes == {"retention": 1}


def test_the_console_format_is_one_readable_line(
    figures: Figures, clock: ManualClock, stream: io.StringIO
) -> None:
    events = Events(figures, clock, log_format="console", log_level="info", stream=stream)
    events("broker_started", native="127.0.0.1:7070")
    assert stream.getvalue().count("\n") == 1
    assert "broker_started" in stream.getvalue()
    assert "native=127.0.0.1:7070" in stream.getvalue()


HOSTILE = "a\x1b[31m\x9b0m\x7f\r\n\u202e\u2028"
SHOWN = r"a\x1b[31m\x9b0m\x7f\r\n\u202e\u2028"


def test_the_console_format_escapes_what_clients_chose(
    figures: Figures, clock: ManualClock, stream: io.StringIO
) -> None:
    events = Events(figures, clock, log_format="console", log_level="info", stream=stream)
    events("connection_dropped", peer="x", cause=HOSTILE)
    events("connection_dropped", peer="x", cause=f"{HOSTILE} 'quoted'", names=[HOSTILE])
    events("task_failed", task="retention", error=StorageError(HOSTILE))
    events("task_failed", task="retention", error=RuntimeError(HOSTILE))
    shown = stream.getvalue()
    assert {letter for letter in shown if not letter.isprintable()} == {"\n"}
    assert shown.replace(r"\\", "\\").count(SHOWN) == 5
    assert "\nRuntimeError: a" in shown


def test_structlogs_global_configuration_is_left_alone(events: Events) -> None:
    events("broker_started")
    assert not structlog.is_configured()
