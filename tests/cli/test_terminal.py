"""What is different on a terminal: completion, and progress on standard error."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from horolog import blocking
from horolog.testing.broker import BrokerThread
from horolog.testing.directories import DataDirectory
from horolog.testing.program import Program

from .terminal import on_terminal


def completed(words: str, server: str) -> list[str]:
    """What bash would offer behind these words."""
    env = {
        "_HOROLOG_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "HOROLOG_SERVER": server,
    }
    return Program(env=env).ok().out.split()


def test_commands_and_topics_are_completed(horolog_broker: BrokerThread) -> None:
    with blocking.Admin(horolog_broker.address) as admin:
        for topic in ("clicks", "clocks", "views"):
            admin.create_topic(topic)
        admin.commit_position("billing", "clicks", 0, 0)
    assert completed("horolog expl", horolog_broker.address) == ["explain"]
    assert completed("horolog consume cl", horolog_broker.address) == ["clicks", "clocks"]
    assert completed("horolog topic describe v", horolog_broker.address) == ["views"]
    assert completed("horolog lag bi", horolog_broker.address) == ["billing"]
    for command in ("seek", "delete"):
        words = f"horolog group {command} billing --topic cl"
        assert completed(words, horolog_broker.address) == ["clicks", "clocks"]


def test_options_of_commands_that_start_a_broker_are_completed() -> None:
    assert completed("horolog serve --ht", "127.0.0.1:1") == ["--http-listen"]
    assert completed("horolog demo --hi", "127.0.0.1:1") == ["--history"]


def test_usage_names_arguments_as_the_guides_do() -> None:
    assert "Usage: horolog dump [OPTIONS] FILE\n" in Program().ok("dump", "--help").out


def test_without_a_broker_nothing_is_completed() -> None:
    assert completed("horolog consume cl", "127.0.0.1:1") == []


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_for_a_shell(shell: str) -> None:
    # The name of the shell is taken as an argument only where it is not looked for.
    program = Program(env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}, own_process=True)
    assert "_HOROLOG_COMPLETE" in program.ok("--show-completion", shell).out


def test_completion_is_installed_for_a_shell_that_then_completes(
    horolog_broker: BrokerThread, tmp_path: Path
) -> None:
    Program(horolog_broker.address).ok("topic", "create", "clicks")
    at_home = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    Program(env=at_home, own_process=True).ok("--install-completion", "bash")
    command = tmp_path / "horolog"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m horolog "$@"\n')
    command.chmod(0o755)
    asked = """
    source ~/.bashrc
    COMP_WORDS=(horolog consume cl) COMP_CWORD=2
    $(complete -p horolog | sed 's/.*-F \\([^ ]*\\).*/\\1/') horolog cl consume
    echo "${COMPREPLY[@]}"
    """
    path = f"{tmp_path}:{os.environ['PATH']}"
    env = {**os.environ, **at_home, "PATH": path, "HOROLOG_SERVER": horolog_broker.address}
    shell = subprocess.run(["bash", "-c", asked], env=env, capture_output=True, text=True)
    assert shell.stdout.split() == ["clicks"], shell.stderr


def test_progress_is_drawn_on_a_terminal_and_nowhere_else(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data")
    data.open().create_topic("a", 1, {})
    data.append("a", *range(10))
    data.close()
    verified = on_terminal("verify", data.path)
    assert "checking" in verified.err
    assert verified.out.endswith("nothing is wrong\n")
    assert Program().ok("verify", data.path).err == ""
    log = data.path / "a-0" / f"{0:020}.log"
    dumped = on_terminal("dump", log)
    assert "reading" in dumped.err
    assert len(dumped.out.splitlines()) == 11
    assert Program().ok("dump", log).err == ""


def test_progress_of_reading(horolog_broker: BrokerThread) -> None:
    program = Program(horolog_broker.address)
    program.ok("produce", "a", stdin="x\n" * 100)
    consumed = on_terminal("consume", "a", "--server", horolog_broker.address)
    assert len(consumed.out.splitlines()) == 100
    assert "reading" in consumed.err
    assert program.ok("consume", "a").err == ""


def test_no_time_is_broken_on_80_columns(horolog_broker: BrokerThread) -> None:
    second_ms = horolog_broker.clock.now_ms() // 1000 * 1000
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("clicks", b"value", timestamp_ms=second_ms + 10 * 86_400_000)
    server = ("--server", horolog_broker.address)
    shown = on_terminal("explain", "retention", "clicks", *server, all_of_it=True).err
    (row,) = [line for line in shown.splitlines() if line.rstrip().endswith("future")]
    assert re.search(r"0 +73 B +\S{20}000Z +in 1[67] d( \d+ h)? +offset 0: future", row)
    assert len(row.rstrip()) <= 80
