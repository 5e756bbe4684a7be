"""Every command ends with the exit code that docs/cli.md promises, and with one line of why."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TextIO

import pytest

from horolog import blocking
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Program
from horolog.tests.in_process import Streams, run_on, writing

Run = Callable[..., CommandResult]

TIME, LATER = "2016-11-14T17:24:32Z", "2016-11-14T18:00:00Z"
BIG = "9" * 20
HISTOGRAM = ["--from", TIME, "--until", LATER, "--every", "5m"]
OUT = ["--out", "out"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path_factory.mktemp("data"), {"retention.ms": -1}) as running:
        with blocking.Producer(running.address) as producer:
            producer.send("here", b"value", timestamp_ms=1_479_144_272_509)
        yield running


@pytest.fixture
def ask(run: Run, broker: BrokerThread, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """As `run`, asking the module's broker, in a folder of the test's own."""
    monkeypatch.setenv("HOROLOG_SERVER", broker.address)
    monkeypatch.chdir(tmp_path)
    return run


WITH_A_BROKER = [
    ["topic", "list"],
    ["topic", "create", "new"],
    ["topic", "describe", "here"],
    ["topic", "alter", "here", "--set", "segment.ms=9"],
    ["topic", "delete", "here"],
    ["topic", "trim", "here", "--before", "latest"],
    ["produce", "here"],
    ["consume", "here"],
    ["consume", "here", "--follow"],
    ["consume", "here", "--from", TIME],
    ["histogram", "here", *HISTOGRAM],
    ["offsets", "here"],
    ["lag"],
    ["lag", "name"],
    ["group", "list"],
    ["group", "describe", "name"],
    ["group", "seek", "name", "--to", "latest", "--topic", "here", "--dry-run"],
    ["group", "delete", "name"],
    ["explain", "offset", "here", "--at", TIME],
    ["explain", "retention", "here"],
    ["explain", "topic", "here"],
    ["explain", "topic", "here..20161114T14Z..1h"],
    ["doctor"],
    ["pipeline", "lag"],
    ["pipeline", "replay", "here", *OUT, "--plan"],
    ["pipeline", "latency", "here"],
    ["pipeline", "watch", "here"],
    ["pipeline", "failover", "here", "--max-latency", "5s", "--last-read", TIME],
]

ABOUT_A_TOPIC = [
    ["topic", "describe"],
    ["topic", "alter", "--set", "segment.ms=9"],
    ["topic", "delete"],
    ["topic", "trim", "--before", "latest"],
    ["consume"],
    ["consume", "--from", TIME],
    ["histogram", *HISTOGRAM],
    ["offsets"],
    ["explain", "offset", "--at", TIME],
    ["explain", "retention"],
    ["pipeline", "replay", *OUT, "--plan"],
    ["pipeline", "latency"],
    ["pipeline", "watch"],
    ["pipeline", "failover", "--max-latency", "5s", "--last-read", TIME],
]

OF_A_PARTITION = [
    ["consume", "here"],
    ["consume", "here", "--from", TIME],
    ["histogram", "here", *HISTOGRAM],
    ["offsets", "here"],
    ["explain", "offset", "here", "--at", TIME],
    ["explain", "retention", "here"],
    ["topic", "trim", "here", "--before", "latest"],
]

WRONG_SETTINGS = [
    "retention=5",
    "retention.ms=x",
    "segment.bytes=1",
    "listen=x",
    "cleanup.policy=keep",
]

TIME_OPTIONS = [
    ["consume", "here", "--from"],
    ["consume", "here", "--until"],
    ["histogram", "here", "--every", "5m", "--from"],
    ["histogram", "here", *HISTOGRAM, "--until"],
    ["offsets", "here", "--at"],
    ["explain", "offset", "here", "--at"],
    ["topic", "trim", "here", "--before"],
    ["group", "seek", "name", "--topic", "here", "--yes", "--to"],
    ["pipeline", "replay", "here", *OUT, "--from"],
    ["pipeline", "replay", "here", *OUT, "--to"],
    ["pipeline", "latency", "here", "--from"],
    ["pipeline", "latency", "here", "--to"],
    ["pipeline", "failover", "here", "--max-latency", "5s", "--last-read"],
]
NOT_A_TIME = [
    "",
    "x",
    "2016-11-14",
    "2016-11-14T17:24:32",
    "-1h",
    "1479144272",
    BIG,
    "\x1b[31m",
    "\udcff",
]

LENGTH_OPTIONS = [
    ["group", "list", "--idle-for"],
    ["pipeline", "lag", "--at-most"],
    ["pipeline", "failover", "here", "--last-read", TIME, "--max-latency"],
    ["pipeline", "replay", "here", *OUT, "--max-out-of-order"],
    ["pipeline", "latency", "here", "--by"],
    ["pipeline", "watch", "here", "--window"],
    ["pipeline", "watch", "here", "--late"],
    ["pipeline", "watch", "here", "--every"],
    ["histogram", "here", "--from", TIME, "--every"],
]

WRONG_USAGE = [
    *(["topic", "create", "t", "--set", setting] for setting in WRONG_SETTINGS),
    *(["topic", "alter", "here", "--set", setting] for setting in WRONG_SETTINGS),
    ["topic", "alter", "here", "--unset", "retention"],
    *([*command, text] for command in TIME_OPTIONS for text in NOT_A_TIME),
    *([*command, text] for command in LENGTH_OPTIONS for text in ("", "x", "5", "-5s")),
    *(
        [*command, "--partition", n]
        for command in OF_A_PARTITION
        for n in ("-1", "x", "2147483648", BIG)
    ),
    *(["produce", "here", "--partition", n] for n in ("-1", "x", "2147483648", BIG)),
    *(["topic", "create", "t", "--partitions", n] for n in ("0", "-1", "x", "2147483648", BIG)),
    *(["topic", "alter", "here", "--partitions", n] for n in ("0", "-1", "x", "2147483648", BIG)),
    *(["topic", "create", "t", "--replication-factor", n] for n in ("0", "x", "32768", BIG)),
    *(
        ["consume", "here", side, f"offset:{n}"]
        for side in ("--from", "--until")
        for n in ("", "x", "-1", BIG)
    ),
    *(["topic", "trim", "here", "--before", f"offset:{n}"] for n in ("", "x", "-1", BIG)),
    *(["group", "seek", "g", "--yes", "--to", f"offset:{n}"] for n in ("", "x", "-1", BIG)),
    *(["group", "seek", "g", "--yes", "--to", f"{sign}{BIG}"] for sign in "+-"),
    *(
        ["group", *command, "--topic", f"here:{n}"]
        for command in (["delete", "g"], ["seek", "g", "--yes", "--to", "latest"])
        for n in ("", "x", "-1", "2147483648", BIG)
    ),
    ["consume", "here", "--from", f"@{TIME}:{LATER}", "--until", LATER],
    ["consume", "here", "--from", LATER, "--until", TIME],
    ["consume", "here", "--by", "append"],
    ["consume", "here", "--stats"],
    ["histogram", "here", "--from", LATER, "--until", TIME, "--every", "5m"],
    ["offsets", "here", "--by", "x"],
    ["offsets", "here", "--by", "append", "--at", "largest"],
    ["produce", "here", "--compression", "zip"],
    ["pipeline", "replay", "here", *OUT, "--from", LATER, "--to", TIME],
    ["pipeline", "latency", "here", "--from", TIME, "--to", TIME],
    ["pipeline", "failover", "here", "--max-latency", "5s"],
    ["pipeline", "failover", "here", "--max-latency", "5s", "--name", "n", "--from-server", "x"],
    ["pipeline", "latency", "here", "--out", "x.gif"],
    ["pipeline", "latency", "here", "--out", "nowhere/x.html"],
    ["pipeline", "bootstrap", "x", "--topic", "here", "--format", "x"],
    ["pipeline", "bootstrap", "x", "--topic", "here", "--option", "x"],
    ["pipeline", "bootstrap", "x", "--topic", "here", "--conf", "x"],
    ["pipeline", "bootstrap", "x", "--topic", "here", "--master", "x"],
    ["pipeline", "package", "x.tar"],
    ["doctor", "--data-dir", "nowhere"],
    ["dump", "."],
    ["verify", "."],
    ["repair", "."],
    ["serve", "--config", "nowhere"],
    ["serve", "--set", "retention=5"],
    ["serve", "--set", "x"],
    ["serve", "--listen", "x"],
    ["serve", "x"],
    ["demo", "--listen", "127.0.0.1:99999"],
    ["demo", "--bogus"],
    *([*command, "--bogus"] for command in WITH_A_BROKER),
    *([*command, "--server", "x"] for command in WITH_A_BROKER),
    *(
        ["topic", "list", "--server", address]
        for address in ("", "a..b:1", "kafka://", "x://a:1", "a:65536")
    ),
    *([*command, "\udcff"] for command in ABOUT_A_TOPIC),
    ["topic", "create", "\udcff"],
    ["produce", "\udcff"],
    ["lag", "\udcff"],
    ["group", "describe", "\udcff"],
    ["group", "delete", "g", "--topic", "\udcff"],
    ["pipeline", "lag", "\udcff"],
]

REFUSED = [
    *([*command, "nowhere"] for command in ABOUT_A_TOPIC),
    *([*command, "--partition", "1"] for command in OF_A_PARTITION),
    ["topic", "create", "here"],
    ["topic", "create", "a/b"],
    ["topic", "create", "t", "--partitions", "2147483647"],
    ["topic", "create", "t", "--replication-factor", "2"],
    ["topic", "alter", "here", "--partitions", "1"],
    ["topic", "trim", "here", "--before", "offset:5"],
    ["consume", "here", "--from", "offset:5"],
    ["lag", "nobody"],
    ["group", "describe", "nobody"],
    ["group", "delete", "nobody"],
    ["group", "seek", "nobody", "--to", "latest", "--yes"],
    ["group", "seek", "nobody", "--to", "latest", "--topic", "nowhere", "--yes"],
    ["pipeline", "lag", "nobody"],
    ["pipeline", "package", "nowhere/x.zip"],
    ["dump", "nowhere.log"],
    ["verify", "nowhere"],
    ["repair", "nowhere"],
]


def named(command: list[str]) -> str:
    return " ".join(command).encode("unicode_escape").decode()


@pytest.mark.parametrize("command", WRONG_USAGE, ids=named)
def test_wrong_usage(ask: Run, command: list[str]) -> None:
    said = ask(*command, code=2)
    assert said.err != ""
    assert "Traceback" not in said.err


@pytest.mark.parametrize("command", REFUSED, ids=named)
def test_refused_or_failed(ask: Run, command: list[str]) -> None:
    said = ask(*command, code=1)
    assert said.err.startswith("horolog: ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("command", WITH_A_BROKER, ids=named)
@pytest.mark.parametrize("server", ["127.0.0.1:1", "kafka://127.0.0.1:1", "no-such-host.invalid:1"])
def test_nobody_is_there(run: Run, command: list[str], server: str) -> None:
    said = run(*command, "--server", server, code=1)
    if not (server.startswith("kafka") and command[:2] == ["pipeline", "latency"]):
        assert "cannot connect to" in said.err + said.out  # else there are no latencies to ask for
    assert "Traceback" not in said.err


WAITING = [
    *(command for command in WITH_A_BROKER if command != ["consume", "here", "--follow"]),
    ["pipeline", "doctor"],
]


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes a connection and does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        yield listening


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()
    return f"{host}:{port}"


@pytest.mark.parametrize("command", WAITING, ids=named)
def test_ctrl_c_while_a_broker_is_waited_for(
    silent: socket.socket, command: list[str], tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as others:
        connecting = others.submit(interrupt_when_connected, silent)
        said = Program(address_of(silent), cwd=tmp_path)(*command)
        connecting.result().close()
    assert (said.code, said.out) == (130, "")
    assert "Traceback" not in said.err


def interrupt_when_connected(listening: socket.socket) -> socket.socket:
    """Press Ctrl-C when a command waits for an answer; returns its connection."""
    connected, _ = listening.accept()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    return connected


@pytest.mark.parametrize(
    "command", [["topic", "list"], ["consume", "here"], ["pipeline", "lag"]], ids=named
)
def test_ctrl_c_ends_a_process_that_waits_for_a_broker(
    silent: socket.socket, command: list[str]
) -> None:
    with Program(address_of(silent)).running(*command) as process:
        connected, _ = silent.accept()
        with connected:
            process.send_signal(signal.SIGINT)
            assert process.wait(100) == 130
            assert process.stderr is not None
            assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("command", "number", "code"),
    [
        (["produce", "here"], signal.SIGINT, 130),
        (["produce", "here"], signal.SIGTERM, -signal.SIGTERM),
        (["consume", "here", "-f", "--from", "offset:0"], signal.SIGINT, 0),
        (["consume", "here", "-f", "--from", "offset:0"], signal.SIGTERM, -signal.SIGTERM),
    ],
)
def test_a_signal_while_messages_are_waited_for(
    broker: BrokerThread, command: list[str], number: int, code: int
) -> None:
    with Program(broker.address).running(*command) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("x\n")
        process.stdin.flush()
        assert process.stdout.readline() != ""
        process.send_signal(number)
        assert process.wait(30) == code
        assert process.stderr is not None
        assert process.stderr.read() == ""


GONE = "a reader that has gone"
CLOSED = "closed"
FULL = "a disk that is full"
OUTPUTS = [(GONE, 0), (CLOSED, 0), (FULL, 1)]
"""Outputs that take nothing, and the exit code of a command that only shows something there."""


@contextmanager
def taking_nothing(kind: str) -> Iterator[TextIO | None]:
    """Such an output."""
    if kind == CLOSED:
        yield None
        return
    if kind == GONE:
        reading, output = os.pipe()
        os.close(reading)
    else:
        output = os.open("/dev/full", os.O_WRONLY)
    with open(output, "w", encoding="utf-8") as file:
        yield file


def run_with(
    address: str, command: list[str], *, out: str | None = None, err: str | None = None
) -> CommandResult:
    """Run a command with a line as its input, whose output or errors go where nothing is taken."""
    with ExitStack() as ends:
        stdin, *files = (ends.enter_context(TemporaryFile()) for _ in range(3))
        stdin.write(b"x\n")
        stdin.seek(0)
        texts = [
            ends.enter_context(writing(file) if kind is None else taking_nothing(kind))
            for kind, file in zip((out, err), files, strict=True)
        ]
        environment = {**os.environ, "HOROLOG_SERVER": address}
        code = run_on(Streams(stdin, *texts), command, environment)
        for text, file in zip(texts, files, strict=True):
            if text is not None:
                text.flush()
            file.seek(0)
        return CommandResult(code, *(file.read().decode() for file in files))


TEXT = [
    ["topic", "list"],
    ["topic", "describe", "here"],
    ["offsets", "here"],
    ["consume", "here"],
    ["consume", "here", "--json"],
    ["--version"],
]


@pytest.mark.parametrize("command", TEXT, ids=named)
@pytest.mark.parametrize(("output", "code"), OUTPUTS, ids=[output for output, _ in OUTPUTS])
def test_an_output_that_takes_nothing(
    broker: BrokerThread, command: list[str], output: str, code: int
) -> None:
    said = run_with(broker.address, command, out=output)
    assert said.code == code
    begin = '{"error": ' if "--json" in command else "horolog: "
    assert said.err.startswith(begin) == bool(code)
    assert ("standard output" in said.err) == bool(code)


@pytest.mark.parametrize("output", [GONE, CLOSED, FULL])
def test_a_produce_whose_answers_nobody_reads_has_failed(broker: BrokerThread, output: str) -> None:
    said = run_with(broker.address, ["produce", "here"], out=output)
    assert said.code == 1
    assert said.err.startswith("horolog: ")
    assert said.err.count("\n") == 1
    assert "standard output" in said.err
    assert said.err.endswith("the rest was not sent\n")


@pytest.mark.parametrize("errors", [CLOSED, FULL])
@pytest.mark.parametrize(
    ("command", "code"),
    [(["topic", "describe", "nowhere"], 1), (["consume", "here", "--from", "x"], 2)],
)
def test_errors_that_cannot_be_told_keep_the_exit_code(
    broker: BrokerThread, command: list[str], code: int, errors: str
) -> None:
    said = run_with(broker.address, command, err=errors)
    assert (said.code, said.out) == (code, "")


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ('exec 3> >(exit 0); wait $!; "$PYTHON" -m horolog consume here --json >&3', 0, ""),
        (
            'exec 3> >(exit 0); wait $!; echo x | "$PYTHON" -m horolog produce here >&3',
            1,
            "horolog: standard output was closed",
        ),
        ('"$PYTHON" -m horolog topic list >&-', 0, ""),
        ('"$PYTHON" -m horolog topic list > /dev/full', 1, "horolog: standard output cannot be"),
        ('"$PYTHON" -m horolog topic describe nowhere 2>&-', 1, ""),
        ('"$PYTHON" -m horolog consume here --from x 2> /dev/full', 2, ""),
    ],
)
def test_a_process_whose_streams_take_nothing_ends_without_complaints_of_the_interpreter(
    broker: BrokerThread, line: str, code: int, says: str
) -> None:
    done = subprocess.run(
        ["bash", "-c", line],
        env={**os.environ, "PYTHON": sys.executable, "HOROLOG_SERVER": broker.address},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(says)
    assert done.stderr.count("\n") == bool(says)
