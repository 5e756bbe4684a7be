"""Pages of docs/ that are run: their commands, and what they print."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from horolog.testing.program import READY, Process
from horolog.tests.in_process import Streams, run_on, writing

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
_BLOCK: Final = re.compile(
    r"<!-- (?P<name>[A-Za-z.-]+) -->\n```(?:python|java|)\n(?P<text>.*?)\n```\n", re.DOTALL
)
_SERVE: Final = "$ horolog serve "
_STOP: Final = "$ # the broker is stopped"
_PORT: Final = re.compile(r"127\.0\.0\.1:(7\d\d\d)")
_ALONE: Final = re.compile(r"horolog (?!pipeline )[^|<>;&$`*?~#]*")
"""A command of the program for which a shell has nothing to do, and which starts no Spark."""
_WRITTEN_FOR_READERS: Final = (
    (re.compile(r"20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "TIME"),
    (re.compile(r"\bprocess \d+"), "process N"),
    (re.compile(r'"timestamp_ms": 1[7-9]\d{11}'), '"timestamp_ms": TIMESTAMP'),
    (re.compile(r"~?\b\d+(\.\d+)?(ms| ms| s)\b"), "SOME SECONDS"),
    (re.compile(r"(_seconds(?:_sum)?\{[^}]*\}) [0-9.e-]+"), r"\1 SOME"),
    (re.compile(r"\s+"), " "),
)
"""What differs from run to run, and white space: the page breaks lines where they read well."""


def blocks(page: str) -> dict[str, str]:
    """The text of each block of `docs/<page>`, by its name."""
    return {match["name"]: match["text"] for match in _BLOCK.finditer((DOCS / page).read_text())}


def comparable(text: str) -> str:
    """The text without what is different in each run."""
    for pattern, replacement in _WRITTEN_FOR_READERS:
        text = pattern.sub(replacement, text)
    return text.strip()


def commands(block: str) -> list[str]:
    """The commands of a block, each a line that begins with a dollar sign."""
    return [line for line in block.splitlines() if line.startswith("$ ")]


@dataclass
class Shell:
    """Runs commands in a folder, as somebody at a terminal would, with ports that are free.

    `horolog serve` goes on behind the other commands; what it logs comes before the next command.
    """

    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60
    """How long one command may take."""
    _ports: dict[str, str] = field(default_factory=dict)
    """For each port that a page names the one that is used."""
    _stack: ExitStack = field(default_factory=ExitStack)
    _servers: "list[_Server]" = field(default_factory=list)

    def __enter__(self) -> "Shell":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, block: str) -> str:
        """The block as it really goes."""
        return self._as_written("\n".join(self._lines(block)))

    def _lines(self, block: str) -> Iterator[str]:
        for command in commands(block):
            yield command
            real = _PORT.sub(self._real_address, command.removeprefix("$ "))
            if command.startswith(_SERVE):
                server = _Server(self.folder, self._environment(), real, len(self._servers))
                self._servers.append(self._stack.enter_context(server))
            elif command == _STOP:
                self._servers[-1].stop()
            else:
                yield from self._output(real)
            for server in self._servers:
                yield from server.news()

    def _output(self, command: str) -> list[str]:
        if _ALONE.fullmatch(command):
            return self._output_in_process(shlex.split(command)[1:])
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=self.timeout_s,
        )
        return done.stdout.splitlines()

    def _output_in_process(self, arguments: list[str]) -> list[str]:
        with TemporaryFile() as nothing, TemporaryFile() as shown, writing(shown) as text:
            run_on(Streams(nothing, text, text), arguments, self._environment(), self.folder)
            text.flush()
            shown.seek(0)
            return shown.read().decode().splitlines()

    def _real_address(self, written: re.Match[str]) -> str:
        return f"127.0.0.1:{self._port(written[1])}"

    def _port(self, written: str) -> str:
        if written not in self._ports:
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))
                self._ports[written] = str(taken.getsockname()[1])
        return self._ports[written]

    def _as_written(self, text: str) -> str:
        for written, real in self._ports.items():
            text = text.replace(f"127.0.0.1:{real}", f"127.0.0.1:{written}")
        return text

    def _environment(self) -> dict[str, str]:
        programs = Path(sys.executable).parent
        return {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOROLOG_LISTEN": f"127.0.0.1:{self._port('7070')}",
            "HOROLOG_HTTP_LISTEN": f"127.0.0.1:{self._port('7071')}",
            "HOROLOG_KAFKA_LISTEN": "off",
            "HOROLOG_SERVER": f"127.0.0.1:{self._port('7070')}",
            "COLUMNS": "200",
            **self.env,
        }


class _Server:
    """A broker that a page starts, and its log."""

    def __init__(self, folder: Path, env: dict[str, str], command: str, number: int) -> None:
        self._log = folder / f".serve-{number}.log"
        self._shown = 0
        with self._log.open("w") as stderr:
            self._process: Process = subprocess.Popen(
                ["bash", "-c", "exec " + command],
                cwd=folder,
                env=env,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self._process.stdout is not None
        self._ready = READY.fullmatch(self._process.stdout.readline())

    def __enter__(self) -> "_Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        assert self._ready is not None, self._log.read_text()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def news(self) -> list[str]:
        """The log lines since the last call."""
        lines = self._log.read_text().splitlines()
        new = lines[self._shown :]
        self._shown = len(lines)
        return new
