"""What `make cluster` runs, from its first line to its end."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from horolog.testing.ports import free_ports
from horolog.testing.program import Process, Program, next_line

LAST_WORDS = "Ctrl-C ends it all."
ENDS_WITHIN_S = 90
"""More than it waits itself for each broker."""


@pytest.fixture
def demo(tmp_path: Path, require_program: Callable[[str], str]) -> Iterator[tuple[Process, str]]:
    """A demo of several brokers that runs, its files in `tmp_path`, and what it says first."""
    require_program("etcd")
    command = (sys.executable, "-m", "horolog.cli.demo.brokers", "--ports")
    with subprocess.Popen(
        [*command, *map(str, free_ports(6))],
        stdout=subprocess.PIPE,
        text=True,
        env={"TMPDIR": str(tmp_path)},
        cwd=tmp_path,
    ) as process:
        said = ""
        try:
            while LAST_WORDS not in said:
                said += next_line(process, 60)
            yield process, said
        finally:
            process.terminate()
            process.wait(ENDS_WITHIN_S)


def found(pattern: str, text: str) -> list[str]:
    every: list[str] = re.findall(pattern, text)
    return every


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_three_brokers_until_a_signal(
    demo: tuple[Process, str], tmp_path: Path, number: signal.Signals
) -> None:
    process, said = demo
    (servers,) = set(found(r"cluster status --server (\S+)", said))
    brokers = [int(pid) for pid in found(r"kill -9 (\d+)", said)]
    assert len(brokers) == len(servers.split(",")) == 3
    program = Program(servers)
    program.ok("produce", "demo-load", stdin="of the test\n")
    assert "of the test" in program.ok("consume", "demo-load").out
    assert program.ok("cluster", "status", "--json").objects[0]["leader"] in (1, 2, 3)
    process.send_signal(number)
    assert process.wait(ENDS_WITHIN_S) == 0
    assert not [pid for pid in brokers if Path(f"/proc/{pid}").exists()]
    assert not list(tmp_path.iterdir())
