"""Commands in the process of the tests do what they do in one of their own, and leave nothing."""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from horolog.testing.broker import BrokerThread
from horolog.testing.program import Program

COMMANDS = [["--help"], ["consume", "t", "--from", "x"], ["topic", "describe", "t"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_says_the_same_as_in_a_process_of_its_own(
    server: BrokerThread, command: list[str]
) -> None:
    assert Program(server.address)(*command) == Program(server.address, own_process=True)(*command)


def process_state(brokers: Path) -> dict[str, object]:
    """What commands might leave in the process; sockets, threads and files of brokers, which have
    their data somewhere in `brokers`, come and go."""
    stdin = os.fstat(0)
    return {
        "environment": dict(os.environ),
        "working directory": Path.cwd(),
        "streams": (sys.stdin, sys.stdout, sys.stderr, sys.__stdout__, stdin.st_dev, stdin.st_ino),
        "arguments": sys.argv,
        "imports": [*sys.meta_path],
        "log": (logging.root.handlers, logging.root.level),
        "Ctrl-C": signal.getsignal(signal.SIGINT),
        "threads": {"stdin", "command"} & {thread.name for thread in threading.enumerate()},
        "files": sorted(
            name for name in open_files() if not name.startswith(("socket:", f"{brokers}/"))
        ),
    }


def open_files() -> Iterator[str]:
    for number in Path("/dev/fd").iterdir():
        with suppress(OSError):
            yield str(number.readlink())


def test_commands_leave_the_process_as_it_was(
    horolog: Program, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    brokers = tmp_path_factory.getbasetemp().resolve()
    program = Program(horolog.server, {"COLUMNS": "50"}, tmp_path)

    def use() -> None:
        program.ok("produce", "t", stdin="a\n")
        for command in COMMANDS:
            program(*command)
        assert program("produce", "t", "--json", stdin="no message\n" * 100_000).code == 1
        assert program("produce", "t", "--server", "127.0.0.1:1", stdin="a\n").code == 1
        assert program("serve", "--listen", "x").code == 2

    use()
    before = process_state(brokers)
    use()
    assert process_state(brokers) == before


def test_commands_at_one_time_each_have_their_own_streams(horolog: Program) -> None:
    topics = [f"topic-{number}" for number in range(4)]
    with ThreadPoolExecutor(len(topics)) as threads:
        sent = threads.map(lambda name: horolog.ok("produce", name, stdin=name * 2), topics)
    assert [one.objects[0]["offset"] for one in sent] == [0] * len(topics)
    for name in topics:
        assert [one["value"] for one in horolog.ok("consume", name, "--json").objects] == [name * 2]


async def test_a_command_runs_beside_the_loop_of_a_test(horolog: Program) -> None:
    sent = await asyncio.to_thread(horolog.ok, "produce", "of-a-thread", stdin="a\n")
    assert sent.objects[0]["offset"] == 0
    assert horolog.ok("produce", "of-a-loop", stdin="a\n").objects[0]["offset"] == 0
