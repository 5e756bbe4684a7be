"""Text that clients or files brought cannot command a terminal, whichever command shows it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest
import typer

from horolog import blocking
from horolog.cli.app import program
from horolog.cli.errors import note
from horolog.cli.options import complete_position_name
from horolog.cli.output import emit, table
from horolog.printable import printable
from horolog.protocol.api.broker.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.registry import APIS
from horolog.protocol.errors import InvalidRequest
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Program

from .terminal import on_terminal

Run = Callable[..., CommandResult]

CONTROLS = (
    "\x1b]0;title\x07",
    "\x1b[31m",
    "\x9b31m",
    "\x85",
    "\x00\x08\x7f\r\n\t",
    "\u202e\u2066\u2069\u200f",
    "\u2028\u2029",
)
HOSTILE = "a" + "".join(CONTROLS) + "[red]z[/red]"
SHOWN = (
    r"a\x1b]0;title\x07\x1b[31m\x9b31m\x85\x00\x08\x7f\r\n\t"
    r"\u202e\u2066\u2069\u200f\u2028\u2029[red]z[/red]"
)


def wild(text: str) -> set[str]:
    """The characters of `text` that could command a terminal."""
    return {letter for letter in text if not letter.isprintable()} - {"\n"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """A broker with hostile names and contents in every place that a client can fill."""
    folder: Path = tmp_path_factory.mktemp("data")
    with BrokerThread(folder, {"kafka.listen": "127.0.0.1:0"}) as running:
        with blocking.Producer(running.address) as producer:
            content = HOSTILE.encode()
            producer.send(
                "clicks", content, key=content, headers=[(HOSTILE, content), ("b", b"\xff\x1b")]
            )
        with blocking.Admin(running.address) as admin:
            admin.commit_position(HOSTILE, "clicks", 0, 0, metadata=HOSTILE)
        yield running


@pytest.fixture(params=["native", "kafka"])
def address(request: pytest.FixtureRequest, broker: BrokerThread) -> str:
    return broker.address if request.param == "native" else f"kafka://{broker.kafka_address}"


COMMANDS: list[list[str]] = [
    ["consume", "clicks"],
    ["consume", "clicks", "--append-time"],
    ["lag"],
    ["lag", HOSTILE.replace("\x00", "")],
    ["group", "list"],
    ["group", "describe", HOSTILE.replace("\x00", "")],
    ["group", "seek", "g", "--to", HOSTILE.replace("\x00", ""), "--dry-run"],
    ["group", "seek", "g", "--to", "latest", "--topic", HOSTILE.replace("\x00", ""), "--dry-run"],
    ["pipeline", "lag"],
    ["pipeline", "lag", "--at-most", "0s"],
    ["topic", "describe", "clicks"],
    ["topic", "describe", HOSTILE.replace("\x00", "")],
    ["topic", "create", HOSTILE.replace("\x00", "")],
    ["topic", "create", "t", "--set", f"retention.ms={HOSTILE}".replace("\x00", "")],
    ["topic", "create", "t", "--set", f"{HOSTILE}=1".replace("\x00", "")],
    ["topic", "list"],
    ["offsets", "clicks"],
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_in_a_pipe(run: Run, address: str, command: list[str]) -> None:
    done = run(*command, "--server", address, code=None)
    assert wild(done.out + done.err) == set()


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_a_terminal(
    broker: BrokerThread, command: list[str], as_json: list[str]
) -> None:
    # One without colours: every control character is foreign.
    given = [*command, *as_json, "--server", broker.address]
    done = on_terminal(*given, kind="dumb", columns=200, all_of_it=True)
    shown = done.err.replace("\r\n", "\n")
    assert shown
    assert wild(shown) == set()


def test_names_and_contents_are_shown_escaped(run: Run, broker: BrokerThread) -> None:
    server = ("--server", broker.address)
    assert (
        f"  {SHOWN}  {SHOWN}  {SHOWN}={SHOWN}  b=\\xff\\x1b"
        in run("consume", "clicks", *server).out
    )
    assert f"{SHOWN}  clicks" in run("lag", *server).out


def test_json_has_the_very_text(run: Run, broker: BrokerThread) -> None:
    done = run("lag", "--json", "--server", broker.address)
    assert {one["name"] for one in done.objects} == {HOSTILE}
    done = run("consume", "clicks", "--json", "--server", broker.address)
    assert wild(done.out) == set()
    (message,) = done.objects
    assert message["value"] == message["key"] == HOSTILE
    assert message["headers"] == [
        {"name": HOSTILE, "value": HOSTILE},
        {"name": "b", "value": {"base64": "/xs="}},
    ]


def test_what_consume_prints_as_json_is_the_same_message_to_produce(tmp_path: Path) -> None:
    contents = [HOSTILE.encode(), bytes(range(256)), b"", "ü€😀".encode(), b"\\x1b"]
    with BrokerThread(tmp_path) as broker:
        program = Program(broker.address)
        with blocking.Producer(broker.address) as producer:
            for content in contents:
                producer.send("a", content, key=content, headers=[(HOSTILE, content)])
            producer.send("a", None)
        printed = program.ok("consume", "a", "--json").out
        program.ok("produce", "b", "--json", stdin=printed)
        with blocking.Consumer(broker.address) as consumer:
            consumer.assign("a")
            consumer.assign("b")
            found: dict[str, list[object]] = {"a": [], "b": []}
            for record in islice(consumer, 12):
                found[record.topic].append((record.key, record.value, list(record.headers)))
    assert len(found["a"]) == 6
    assert found["a"] == found["b"]


@pytest.mark.parametrize("command", ["dump", "verify", "repair"])
def test_files(run: Run, broker: BrokerThread, tmp_path: Path, command: str) -> None:
    if command == "dump":
        done = run("dump", broker.data_dir / "clicks-0" / f"{0:020}.log")
        assert SHOWN in done.out
    else:
        folder = tmp_path / HOSTILE.replace("\x00", "").replace("/", "") / "t-0"
        folder.mkdir(parents=True)
        (folder / f"{0:020}.log").write_bytes(b"no message")
        done = run(command, folder.parent, *(["--yes"] if command == "repair" else []), code=None)
        assert "\\x1b]0;title" in done.out
    assert wild(done.out + done.err) == set()


@pytest.mark.parametrize(
    "command",
    [
        ["topic", "list"],
        ["lag"],
        ["group", "list"],
        ["group", "describe", "g"],
        ["group", "delete", "g", "--yes"],
        ["doctor"],
        ["offsets", "t"],
        ["consume", "t"],
        ["explain", "retention", "t"],
        ["topic", "trim", "t", "--before", "latest"],
        ["produce", "t"],
        ["pipeline", "lag"],
        ["pipeline", "doctor"],
    ],
)
def test_the_errors_of_a_hostile_broker(command: list[str]) -> None:
    with hostile_broker() as address:
        done = Program(address)(*command, stdin="x\n")
    assert done.code == 1
    assert "title" in done.out + done.err
    assert wild(done.out + done.err) == set()


def test_a_name_that_a_shell_would_not_take_as_it_is_is_not_completed(
    broker: BrokerThread,
) -> None:
    names = ["müller", "a.b-c_d", "x;reboot", "$(reboot)", "two words", HOSTILE]
    with blocking.Admin(broker.address) as admin:
        for name in names:
            admin.commit_position(name, "clicks", 0, 0)

    context = typer.Context(program())
    context.params = {"server": broker.address}
    found = complete_position_name(context, "")
    assert found == ["a.b-c_d", "müller"]


def test_markup_is_text(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    emit(table(("[b]name[/b]",), [(HOSTILE,)]))
    shown = capfd.readouterr().out
    assert "[b]name[/b]" in shown
    assert SHOWN in shown


def test_plain_lines_and_notes(capfd: pytest.CaptureFixture[str]) -> None:
    emit([HOSTILE, "ü €"])
    note(HOSTILE)
    out, err = capfd.readouterr()
    assert out == f"{SHOWN}\nü €\n"
    assert err == f"horolog: {SHOWN}\n"


def test_half_a_character_is_escaped_too() -> None:
    assert printable("a\udcffb") == r"a\udcffb"


@contextmanager
def hostile_broker() -> Iterator[str]:
    """One that refuses everything, in its own words."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(4), "big")
                head, _ = native.open_request(await reader.readexactly(length))
                api = APIS[head.api_key]
                if api is API_VERSIONS:
                    served = [
                        ApiVersion(
                            api_key=one.key,
                            min_version=one.min_version,
                            max_version=one.last_version(native=True),
                        )
                        for one in APIS.values()
                    ]
                    answer = native.encode_response(
                        head.correlation_id, api, head.version, ApiVersionsResponse(api_keys=served)
                    )
                else:
                    answer = native.encode_error(head.correlation_id, InvalidRequest.code, HOSTILE)
                writer.write(answer)
        except asyncio.IncompleteReadError:
            writer.close()

    started: threading.Event = threading.Event()
    found: dict[str, object] = {}

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        found["port"] = server.sockets[0].getsockname()[1]
        stop = found["stop"] = asyncio.Event()
        found["loop"] = asyncio.get_running_loop()
        started.set()
        await stop.wait()
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert started.wait(20)
    try:
        yield f"127.0.0.1:{found['port']}"
    finally:
        loop, stop = found["loop"], found["stop"]
        assert isinstance(loop, asyncio.AbstractEventLoop)
        assert isinstance(stop, asyncio.Event)
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
