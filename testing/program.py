"""Runs the program in its own processes: a broker, and commands that talk to it."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Timer
from typing import IO, Any, Final

READY: Final = re.compile(
    r"ready native=(?P<native>\S+:\d+)(?: http=(?P<http>\S+:\d+))?(?: kafka=(?P<kafka>\S+:\d+))?\n"
)
"""The line that a broker prints when it can serve."""

WITH_HTTP: Final = ("--http-listen", "127.0.0.1:0")
"""Options of a broker that also answers HTTP."""

_PROGRAM: Final = (sys.executable, "-m", "horolog")
_DEADLINE_SECONDS: Final = 120

Process = subprocess.Popen[str]


def next_line(process: Process, within_s: float = _DEADLINE_SECONDS) -> str:
    """Return the next line that a command prints. If none comes within `within_s`, the command is
    killed and AssertionError raised."""
    assert process.stdout is not None
    killed = Timer(within_s, process.kill)
    killed.start()
    try:
        line = process.stdout.readline()
    finally:
        killed.cancel()
    assert line, f"no line within {within_s} s, or the command ended (code {process.poll()})"
    return line


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[Any]:
        """Standard output as JSON, one object per line."""
        return [json.loads(line) for line in self.out.split("\n")[:-1]]


RunCommand = Callable[[Sequence[str], bytes, Mapping[str, str], Path | None], CommandResult]
"""Runs a command to its end: arguments, standard input, environment, working directory."""


def run_in_own_process(
    arguments: Sequence[str], stdin: bytes, environment: Mapping[str, str], cwd: Path | None
) -> CommandResult:
    """Run a command to its end in a process of its own."""
    done = subprocess.run(
        [*_PROGRAM, *arguments],
        input=stdin,
        capture_output=True,
        env=environment,
        cwd=cwd,
        timeout=_DEADLINE_SECONDS,
    )
    return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())


StartBroker = Callable[[Sequence[str], IO[str], Mapping[str, str]], Process | None]
"""Starts a broker: arguments, standard error, environment. Returns `None` if it cannot."""

_runs: RunCommand = run_in_own_process
_starts: StartBroker | None = None


@contextmanager
def commands_run_by(run: RunCommand) -> Iterator[None]:
    """Have `run` run the commands of every `Program`, except those with `own_process`, until the
    end of the block."""
    global _runs
    before, _runs = _runs, run
    try:
        yield
    finally:
        _runs = before


@contextmanager
def brokers_started_by(start: StartBroker) -> Iterator[None]:
    """Have `start` start the brokers of `serving`, except those with `own_process`, until the end
    of the block."""
    global _starts
    before, _starts = _starts, start
    try:
        yield
    finally:
        _starts = before


@dataclass(frozen=True, slots=True)
class Program:
    """Runs commands. `server` is the broker that they talk to; `env` is added to their environment.
    Settings in the environment of this process do not reach them."""

    server: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    own_process: bool = False
    """Whether commands need a process of their own, regardless of `commands_run_by`."""

    def __call__(self, *arguments: str | Path, stdin: str | bytes = b"") -> CommandResult:
        """Run a command to its end."""
        run = run_in_own_process if self.own_process else _runs
        given = stdin.encode() if isinstance(stdin, str) else stdin
        return run([*map(str, arguments)], given, self._environment(), self.cwd)

    def ok(self, *arguments: str | Path, stdin: str | bytes = b"") -> CommandResult:
        """Run a command that must succeed; raises `RuntimeError` if it fails."""
        result = self(*arguments, stdin=stdin)
        if result.code != 0:
            raise RuntimeError(f"{arguments}: exit code {result.code}: {result.err}")
        return result

    @contextmanager
    def running(self, *arguments: str | Path) -> Iterator[Process]:
        """Run a command whose standard streams the caller uses; it is killed at the end of the
        block."""
        with subprocess.Popen(
            [*_PROGRAM, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment(),
            cwd=self.cwd,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def _environment(self) -> dict[str, str]:
        server = {} if self.server is None else {"HOROLOG_SERVER": self.server}
        return clean_environment() | server | self.env


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A broker in a process of its own."""

    process: Process
    native: str
    """Address of the native protocol."""
    kafka: str | None
    """Address for Kafka's clients; only with `--kafka-listen`."""
    data_dir: Path
    log: Path
    """File with the broker's standard error."""
    http_address: str | None = None
    """Address for HTTP; only with `--http-listen`."""

    @property
    def http(self) -> str:
        """Address for HTTP of a broker with `--http-listen`."""
        assert self.http_address is not None, "the broker was started without --http-listen"
        return self.http_address

    @property
    def program(self) -> Program:
        """A `Program` whose commands talk to this broker."""
        return Program(self.native)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(_DEADLINE_SECONDS)


@contextmanager
def serving(
    data_dir: Path,
    *arguments: str | Path,
    command: str = "serve",
    env: dict[str, str] | None = None,
    limits: Mapping[int, int] | None = None,
    own_process: bool = False,
) -> Iterator[ServerProcess]:
    """Run a broker on a free port. The block starts at its ready line; at the end the broker is
    killed.

    The broker answers HTTP and Kafka's clients only with `--http-listen` and `--kafka-listen`: the
    HTTP libraries take as much processor time as the rest of the start.

    `limits` are resource limits of the process, such as `{resource.RLIMIT_AS: bytes}`. With
    `own_process` a new interpreter is started, regardless of `brokers_started_by`. Raises
    `RuntimeError` with the broker's output if it does not get ready.
    """
    log = data_dir.parent / f"{data_dir.name}.log"
    places: list[str | Path] = ["--data-dir", data_dir]
    defaults = {"--listen": "127.0.0.1:0", "--http-listen": "off", "--kafka-listen": "off"}
    for flag, address in defaults.items():
        if flag not in arguments:  # each option given adds one more address
            places += [flag, address]
    given = [command, *map(str, places), *map(str, arguments)]
    environment = clean_environment() | (env or {})
    forked = _starts if command == "serve" and not limits and not own_process else None
    with (
        log.open("a") as stderr,
        (forked and forked(given, stderr, environment))
        or _started(given, stderr, environment, limits) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = READY.fullmatch(line)
            if match is None:
                raise RuntimeError(f"{line!r} is not a ready line; {log.read_text()}")
            yield ServerProcess(
                process, match["native"], match["kafka"], data_dir, log, match["http"]
            )
        finally:
            process.kill()


def _started(
    arguments: Sequence[str],
    stderr: IO[str],
    environment: Mapping[str, str],
    limits: Mapping[int, int] | None,
) -> Process:
    return subprocess.Popen(
        [*_PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment,
        text=True,
        preexec_fn=partial(_set_limits, limits) if limits else None,
    )


def _set_limits(limits: Mapping[int, int]) -> None:
    for number, limit in limits.items():
        resource.setrlimit(number, (limit, limit))


def clean_environment() -> dict[str, str]:
    """Return the environment of this process without Horolog's settings."""
    return {name: text for name, text in os.environ.items() if not name.startswith("HOROLOG_")}
