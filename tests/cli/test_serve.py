"""`horolog serve`: starting, settings, stopping."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Program, serving

HERE = ("--listen", "127.0.0.1:0", "--http-listen", "off", "--kafka-listen", "off")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly_and_nothing_is_lost(tmp_path: Path, number: int) -> None:
    with serving(tmp_path / "data", own_process=True) as server:
        server.program.ok("produce", "t", stdin="a\nb\n")
        assert server.stop(number) == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""
    with BrokerThread(tmp_path / "data") as broker:
        read = Program(broker.address).ok("consume", "t", "--json").objects
    assert [(one["offset"], one["value"]) for one in read] == [(0, "a"), (1, "b")]


def test_ready_without_http_names_only_the_native_address(tmp_path: Path) -> None:
    arguments = ("serve", "--data-dir", tmp_path / "data", *HERE)
    with Program().running(*arguments) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = line.removeprefix("ready native=").rstrip("\n")
        assert address.count(":") == 1
        Program().ok("topic", "list", "--server", address)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "horolog.toml"
    config.write_text("[retention]\nms = 1000001\n[segment]\nms = 1000002\nbytes = 1000003\n")
    env = {"HOROLOG_RETENTION_MS": "2000001", "HOROLOG_SEGMENT_MS": "2000002"}
    options = ("--config", config, "--set", "retention.ms=3000001")
    with serving(tmp_path / "data", *options, env=env, own_process=True) as server:
        server.program.ok("topic", "create", "t")
        (found,) = server.program.ok("topic", "describe", "t", "--json").objects
        values = {one["name"]: (one["value"], one["source"]) for one in found["settings"]}
    assert values["retention.ms"] == ("3000001", "broker")
    assert values["segment.ms"] == ("2000002", "broker")
    assert values["segment.bytes"] == ("1000003", "broker")


def test_places_can_come_from_the_environment(tmp_path: Path) -> None:
    env = {
        "HOROLOG_LISTEN": "127.0.0.1:0",
        "HOROLOG_HTTP_LISTEN": "off",
        "HOROLOG_KAFKA_LISTEN": "off",
        "HOROLOG_DATA_DIR": str(tmp_path / "elsewhere"),
        "HOROLOG_COLOUR": "blue",
    }
    with Program(env=env).running("serve") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready native=127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        assert process.stderr is not None
        assert re.search(r"variables_ignored +names=HOROLOG_COLOUR\n", process.stderr.read())
    assert (tmp_path / "elsewhere").is_dir()


@pytest.mark.parametrize(
    ("arguments", "env", "named"),
    [
        (["--set", "retention.ms=soon"], {}, ["--set retention.ms=soon", "a whole number"]),
        (["--set", "retention.ms"], {}, ["NAME=VALUE"]),
        (["--set", "retention.msec=1"], {}, ["retention.msec", "did you mean retention.ms?"]),
        (["--listen", "7070"], {}, ["listen", "HOST:PORT"]),
        (["--kafka-listen", "on"], {}, ["kafka.listen", "HOST:PORT", "off"]),
        (["--config", "no-such-file"], {}, ["no-such-file"]),
        ([], {"HOROLOG_SEGMENT_BYTES": "1"}, ["HOROLOG_SEGMENT_BYTES", "from 14 to 2147483647"]),
        (["--no-such-option"], {}, ["--no-such-option"]),
    ],
)
def test_a_wrong_setting_is_wrong_usage_and_named(
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[..., CommandResult],
    arguments: list[str],
    env: dict[str, str],
    named: list[str],
) -> None:
    for variable, text in env.items():
        monkeypatch.setenv(variable, text)
    result = run("serve", *arguments, code=2)
    assert result.out == ""
    assert all(text in result.err for text in named), result.err


def test_a_port_that_is_taken_is_named_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = Program(cwd=tmp_path)("serve", "--listen", address, *HERE[2:])
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[-1].startswith(f"horolog: cannot listen on {address}")
    assert "Traceback" not in result.err


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "data", own_process=True) as server:
        result = Program()("serve", "--data-dir", tmp_path / "data", *HERE)
        assert (result.code, result.out) == (1, "")
        assert str(server.process.pid) in result.err
        assert server.stop() == 0


def test_serve_starts_without_the_libraries_that_can_wait() -> None:
    late = {"typer", "rich", "aiohttp", "structlog", "prometheus_client", "horolog.client"}
    late |= {"cramjam", "lz4", "tomllib"}
    code = (
        "import sys; from horolog.cli.main import run\n"
        "print(run(['serve', '--listen', 'wrong']))\n"
        "import horolog.server.main\n"
        f"print(sorted({late} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n[]\n"
