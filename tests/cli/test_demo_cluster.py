"""What `make cluster` runs, from its first line to its end."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from horolog.testing.ports import free_ports
from horolog.testing.program import Process, Program, next_line

LAST_WORDS = "Ctrl-C ends it all."
ENDS_WITHIN_S = 90
"""More than it waits itself for each broker."""


@contextmanager
def run_demo(place: Path, ports: list[int]) -> Iterator[Process]:
    """Run a demo of several brokers, its files in `place`, with the ports of the brokers and two of
    etcd. Its history is the files beside this one."""
    command = (sys.executable, "-m", "horolog.cli.demo.brokers", "--history", Path(__file__).parent)
    with subprocess.Popen(
        [*command, "--ports", *map(str, ports[:6]), "--etcd-ports", *map(str, ports[6:])],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"TMPDIR": str(place)},
        cwd=place,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(ENDS_WITHIN_S)


@pytest.fixture
def demo(tmp_path: Path, require_program: Callable[[str], str]) -> Iterator[tuple[Process, str]]:
    """A demo that runs, and what it says first."""
    require_program("etcd")
    with run_demo(tmp_path, free_ports(8)) as process:
        said = ""
        try:
            while LAST_WORDS not in said:
                said += next_line(process)
        except AssertionError as error:
            for log in sorted(tmp_path.glob("*/*.log")):
                said += f"{log.name}: {log.read_text()[-2000:]}\n"
            raise AssertionError(f"{said}{error}") from error
        yield process, said


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


def test_a_broker_that_cannot_start_ends_it_with_the_reason(
    tmp_path: Path, require_program: Callable[[str], str]
) -> None:
    require_program("etcd")
    ports = free_ports(8)
    taken = ports[4]  # for clients of the third
    with closing(socket.create_server(("127.0.0.1", taken))), run_demo(tmp_path, ports) as process:
        said, _ = process.communicate(timeout=ENDS_WITHIN_S)
        assert process.returncode == 1
    assert re.fullmatch(
        rf"horolog: broker 3 did not start: .*127\.0\.0\.1:{taken}.*Address already in use",
        said.splitlines()[-1],
    )
    assert not list(tmp_path.iterdir())
