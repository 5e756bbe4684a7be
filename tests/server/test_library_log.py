"""What libraries log becomes events of the broker: in its format, and few of them."""

import asyncio
import gc
import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from horolog.clock import Clock
from horolog.server.events import (
    BURST,
    LONGEST_MESSAGE,
    MAX_RARE,
    Events,
    LibraryLog,
    library_messages_to,
)
from horolog.server.metrics.figures import Figures
from horolog.testing.clock import ManualClock

from .processes import process, ready


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def figures(clock: Clock) -> Figures:
    return Figures(clock, 1000)


@pytest.fixture
def events(clock: Clock, log: io.StringIO, figures: Figures) -> Events:
    return Events(figures, clock, log_format="json", stream=log)


@pytest.fixture
async def taken(events: Events) -> AsyncIterator[None]:
    # What other tests have left would tell of its end here.
    gc.disable()
    try:
        # pytest has handlers and hooks of its own.
        with library_messages_to(events, asyncio.get_running_loop()):
            yield
    finally:
        gc.enable()


@pytest.fixture(autouse=True)
def nothing_else(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    assert capfd.readouterr() == ("", "")


def lines(log: io.StringIO) -> list[dict[str, str]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


async def test_records_of_logging_are_events(taken: None, log: io.StringIO) -> None:
    logging.getLogger("asyncio").warning("socket.send() raised exception.")
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError:
        logging.getLogger("some.library").exception("it failed for %s", "that")
    logging.getLogger("some.library").info("nothing worth telling")
    one, two = lines(log)
    assert (one["event"], one["level"]) == ("library_warning", "warning")
    assert one["message"] == "socket.send() raised exception."
    assert one["at"].startswith("asyncio test_library_log:")
    assert (two["event"], two["level"]) == ("library_error", "error")
    assert (two["message"], two["error"]) == ("it failed for that", "a bug")
    assert "exception" in two


def logger(events: Events) -> logging.Logger:
    made = logging.Logger("library")
    made.addHandler(LibraryLog(events))
    return made


def test_a_record_that_is_wrong_itself(events: Events, log: io.StringIO) -> None:
    logger(events).error("%d", "no number")
    logger(events).error("x" * 1_000_000)
    wrong, long = lines(log)
    assert wrong["message"].startswith("'%d' (")
    assert len(long["message"]) == LONGEST_MESSAGE


def test_the_same_again_is_only_counted(
    events: Events, log: io.StringIO, clock: ManualClock, figures: Figures
) -> None:
    library = logger(events)
    for _ in range(3):
        for _ in range(1000):
            library.warning("socket.send() raised exception.")
        clock.advance(61_000)
    assert len(lines(log)) == 3
    assert figures.suppressed_lines == {"library_warning": 3 * 999}


def test_however_many_kinds_there_are(
    events: Events, log: io.StringIO, clock: ManualClock, figures: Figures
) -> None:
    for number in range(3 * MAX_RARE):
        events("library_error", message="m", at=f"place {number}", error=None)
        clock.advance(1)
    assert len(lines(log)) == MAX_RARE + 1
    assert figures.suppressed_lines == {"library_error": 2 * MAX_RARE - 1}
    for _ in range(2 * BURST):
        events("loop_error", message="Task exception was never retrieved", error=KeyError("a"))
    assert lines(log)[-1]["event"] == "loop_error"
    assert figures.suppressed_lines["loop_error"] == 2 * BURST - 1


async def test_warnings_are_events(taken: None, log: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("that is old", DeprecationWarning, stacklevel=1)
    (line,) = lines(log)
    assert (line["event"], line["message"]) == (
        "library_warning",
        "DeprecationWarning: that is old",
    )
    assert "test_library_log.py" in line["at"]


class Unraisable:
    def __del__(self) -> None:
        raise ZeroDivisionError("in a finalizer")


async def test_what_cannot_be_raised_is_an_event(taken: None, log: io.StringIO) -> None:
    Unraisable()
    await asyncio.sleep(0)
    (line,) = lines(log)
    assert (line["event"], line["error"]) == ("library_error", "in a finalizer")


async def test_the_end_of_a_thread_is_an_event(taken: None, log: io.StringIO) -> None:
    def fail() -> None:
        raise ZeroDivisionError("in a thread")

    thread = threading.Thread(target=fail, name="t1")
    thread.start()
    thread.join()
    (line,) = lines(log)
    assert (line["event"], line["error"]) == ("library_error", "in a thread")
    assert "t1" in line["message"]


async def test_all_is_as_before_in_the_end(events: Events) -> None:
    before = sys.unraisablehook, threading.excepthook, warnings.showwarning
    handlers = list(logging.getLogger().handlers)
    with library_messages_to(events, asyncio.get_running_loop()):
        assert sys.unraisablehook is not before[0]
    assert (sys.unraisablehook, threading.excepthook, warnings.showwarning) == before
    assert logging.getLogger().handlers == handlers


LOUD = """
import asyncio, gc, json, logging, sys, threading, warnings
from horolog.config.broker import broker_settings
from horolog.server.main import serve

class Unraisable:
    def __del__(self):
        raise ZeroDivisionError("in a finalizer")

async def fail():
    raise ZeroDivisionError("in a task")

async def beside(addresses):
    warnings.simplefilter("always")
    for number in range(1000):
        logging.getLogger("asyncio").warning("socket.send() raised exception.")
        warnings.warn("that is old", DeprecationWarning)
        asyncio.create_task(fail())
        Unraisable()
        await asyncio.sleep(0)
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    gc.collect()
    await asyncio.sleep(0)
    print("done", flush=True)
    await asyncio.Event().wait()

sys.exit(serve(broker_settings(json.loads(sys.argv[1])), beside))
"""


@pytest.mark.parametrize("event_loop", ["uvloop", "asyncio"])
async def test_a_process_writes_nothing_but_its_own_log(tmp_path: Path, event_loop: str) -> None:
    async with process(tmp_path, program=LOUD, log_format="json", event_loop=event_loop) as started:
        await ready(started)
        assert started.stdout is not None
        assert await started.stdout.readline() == b"done\n"
        started.terminate()
        _, log = await started.communicate()
        assert started.returncode == 0
    told = [json.loads(line) for line in log.splitlines()]
    events = [line["event"] for line in told]
    assert events.count("library_warning") == 2
    assert events.count("library_error") == 2
    assert events.count("loop_error") == 1
    assert len(told) < 12
