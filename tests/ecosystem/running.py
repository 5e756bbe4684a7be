"""Runs a program of others to its end, or up to what it is waited for; each has a time limit."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_SHOWN: Final = 4000
_STOP_SECONDS: Final = 30


def run(command: Sequence[object], log: Path, *, seconds: float) -> None:
    """Run a program that ends by itself. Fails with the end of what it wrote."""
    with log.open("w") as out:
        try:
            code: object = subprocess.run(
                [*map(str, command)],
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=seconds,
            ).returncode
        except subprocess.TimeoutExpired:
            code = f"no end within {seconds:g} s"
    assert code == 0, f"{code}\n{tail(log)}"


def tail(log: Path) -> str:
    return log.read_text("utf-8", "replace")[-_SHOWN:]


@contextmanager
def running(command: Sequence[object], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that goes on until it is told to stop."""
    with (
        log.open("ab") as out,
        subprocess.Popen([*map(str, command)], stdout=out, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield process
        except Exception as error:
            error.add_note(tail(log))
            raise
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
