"""The runnable blocks of docs/operations.md: a scenario, commands, and what they print."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from horolog.testing.program import READY, Process

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
_BLOCK: Final = re.compile(r"<!-- (?P<name>[a-z-]+) -->\n```\n(?P<text>.*?)\n```\n", re.DOTALL)
_SERVE: Final = "$ horolog serve "
_STOP: Final = "$ # the broker is stopped"
_WRITTEN_FOR_READERS: Final = (
    (re.compile(r"20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "TIME"),
    (re.compile(r"\bprocess \d+"), "process N"),
    (re.compile(r'"timestamp_ms": 1[7-9]\d{11}'), '"timestamp_ms": TIMESTAMP'),
    (re.compile(r"\s+"), " "),
)
"""What differs from run to run, and white space: the page breaks lines where they read well."""


def blocks() -> dict[str, str]:
    """The text of each block, by the name of its scenario."""
    return {match["name"]: match["text"] for match in _BLOCK.finditer(PAGE.read_text())}


def comparable(text: str) -> str:
    """The text without what is different in each run."""
    for pattern, replacement in _WRITTEN_FOR_READERS:
        text = pattern.sub(replacement, text)
    return text.strip()


@dataclass
class Shell:
    """Runs a block's commands in a folder, as somebody at a terminal would.

    `horolog serve` goes on behind the other commands; what it logs comes before the next command.
    """

    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def run(self, block: str) -> str:
        """The block as it really goes."""
        with ExitStack() as stack:
            return "\n".join(self._lines(block, stack))

    def _lines(self, block: str, stack: ExitStack) -> Iterator[str]:
        server: _Server | None = None
        for command in commands(block):
            yield command
            if command.startswith(_SERVE):
                server = stack.enter_context(_Server(self.folder, self._environment(), command))
            elif command == _STOP:
                assert server is not None
                server.stop()
            else:
                yield from self._output(command, server)
            if server is not None:
                yield from server.news()

    def _output(self, command: str, server: "_Server | None") -> list[str]:
        address = {} if server is None else {"HOROLOG_SERVER": server.address}
        done = subprocess.run(
            ["bash", "-c", command.removeprefix("$ ")],
            cwd=self.folder,
            env=self._environment() | address,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        return done.stdout.splitlines()

    def _environment(self) -> dict[str, str]:
        programs = Path(sys.executable).parent
        return {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOROLOG_LISTEN": "127.0.0.1:0",
            "HOROLOG_HTTP_LISTEN": "127.0.0.1:0",
            "COLUMNS": "200",
            **self.env,
        }


class _Server:
    """A broker that a block starts, and its log."""

    def __init__(self, folder: Path, env: dict[str, str], command: str) -> None:
        self._log = folder / ".serve.log"
        self._shown = 0
        with self._log.open("w") as stderr:
            self._process: Process = subprocess.Popen(
                ["bash", "-c", "exec " + command.removeprefix("$ ")],
                cwd=folder,
                env=env,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self._process.stdout is not None
        ready = READY.fullmatch(self._process.stdout.readline())
        self.address = "" if ready is None else ready["native"]

    def __enter__(self) -> "_Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def news(self) -> list[str]:
        """The log lines since the last call."""
        lines = self._log.read_text().splitlines()
        new = lines[self._shown :]
        self._shown = len(lines)
        return new


def commands(block: str) -> list[str]:
    """The commands of a block, each a line that begins with a dollar sign."""
    return [line for line in block.splitlines() if line.startswith("$ ")]
