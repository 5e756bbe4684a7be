"""Commands of the program in the process of the tests, without the start of an interpreter.

A command has its own standard streams, environment, working directory and log handlers while it
runs. All of them belong to the whole process, so one command runs at a time, and afterwards each is
what it was. A signal reaches the command only if it runs in the main thread.
"""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final, TextIO

import pytest

from horolog.cli.lines import THREAD_NAME
from horolog.cli.main import main
from horolog.testing.program import CommandResult, commands_run_by

_DEADLINE_SECONDS: Final = 150
"""How long a command waits for the one before it."""

_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Streams:
    """Standard streams of a command. `None` is a stream that was closed before the start."""

    stdin: IO[bytes]
    stdout: TextIO | None
    stderr: TextIO | None


@pytest.fixture(scope="session", autouse=True)
def commands_in_this_process() -> Iterator[None]:
    """Commands run in this process, which costs a hundredth of a process of their own. What tests
    the process itself takes `Program(own_process=True)`, or `running`."""
    with commands_run_by(run_in_process):
        yield


def run_in_process(
    arguments: Sequence[str],
    stdin: bytes,
    environment: Mapping[str, str],
    cwd: Path | None = None,
) -> CommandResult:
    """Run a command to its end, with files for its standard streams."""
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        with writing(out) as stdout, writing(err) as stderr:
            code = run_on(Streams(given, stdout, stderr), arguments, environment, cwd)
        return CommandResult(code, _content(out), _content(err))


def run_on(
    streams: Streams,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path | None = None,
) -> int:
    """Run a command to its end on the streams given; returns its exit code.

    Raises what a process would report with a traceback.
    """

    def run() -> int:
        with _own_process_state(streams, arguments, environment, cwd):
            return _exit_code()

    return _in_other_thread(run) if _loop_is_running() else run()


def _exit_code() -> int:
    try:
        main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_other_thread(run: Callable[[], int]) -> int:
    """A command has an event loop of its own, and a thread has one at most."""
    result: Future[int] = Future()

    def work() -> None:
        try:
            result.set_result(run())
        except BaseException as error:
            result.set_exception(error)

    thread = threading.Thread(target=work, name="command", daemon=True)
    thread.start()
    code = result.result(_DEADLINE_SECONDS)
    thread.join()
    return code


@contextmanager
def _own_process_state(
    streams: Streams, arguments: Sequence[str], environment: Mapping[str, str], cwd: Path | None
) -> Iterator[None]:
    if not _one_at_a_time.acquire(timeout=_DEADLINE_SECONDS):
        raise RuntimeError("another command runs in this process and does not end")
    with ExitStack() as ends:
        ends.callback(_one_at_a_time.release)
        ends.enter_context(_environment(environment))
        ends.enter_context(_working_directory(cwd))
        ends.enter_context(_standard_streams(streams))
        ends.enter_context(_other_state(["horolog", *arguments]))
        yield


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    _set_environment(wanted)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(wanted: Mapping[str, str]) -> None:
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    for name, text in wanted.items():
        if os.environ.get(name) != text:
            os.environ[name] = text


@contextmanager
def _working_directory(cwd: Path | None) -> Iterator[None]:
    if cwd is None:
        yield
        return
    before = Path.cwd()
    os.chdir(cwd)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _standard_streams(streams: Streams) -> Iterator[None]:
    names = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")
    before = {name: getattr(sys, name) for name in names}
    descriptor = os.dup(0)  # Commands read standard input by its number, too.
    os.dup2(streams.stdin.fileno(), 0)
    try:
        with open(0, encoding="utf-8", closefd=False) as stdin:
            own = (stdin, streams.stdout, streams.stderr)
            for name, stream in zip(names, own * 2, strict=True):
                setattr(sys, name, stream)
            yield
    finally:
        for name, stream in before.items():
            setattr(sys, name, stream)
        for thread in threading.enumerate():
            if thread.name == THREAD_NAME:
                thread.join(_DEADLINE_SECONDS)  # It would read what belongs to others.
        os.dup2(descriptor, 0)
        os.close(descriptor)


@contextmanager
def _other_state(argv: list[str]) -> Iterator[None]:
    """As in a new interpreter: what is logged goes to standard error, as nothing was set up."""
    before = sys.argv, logging.root.handlers, logging.root.level
    meta_path = sys.meta_path[:]
    sys.argv, logging.root.handlers = argv, []
    logging.root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        sys.argv, logging.root.handlers, level = before
        sys.meta_path[:] = meta_path
        logging.root.setLevel(level)


@contextmanager
def writing(file: IO[bytes]) -> Iterator[TextIO]:
    """A stream of text into a file that stays open."""
    with open(file.fileno(), "w", encoding="utf-8", closefd=False) as text:
        yield text


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
