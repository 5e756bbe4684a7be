"""Commands on a terminal."""

import os
import pty
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from horolog.testing.program import CommandResult
from horolog.tests.in_process import Streams, run_on, writing


def on_terminal(
    *arguments: str | Path,
    kind: str = "xterm",
    columns: int = 80,
    all_of_it: bool = False,
    typed: str | None = None,
) -> CommandResult:
    """Run a command whose standard error is a terminal of `kind` and that wide, and whose standard
    output is a file. With `all_of_it` standard output is the terminal, too; what it shows is `err`.
    With `typed` standard input is the terminal, and this is typed there.
    """
    master, slave = pty.openpty()
    shown = bytearray()
    reading = threading.Thread(target=_read, args=(master, shown))
    reading.start()
    try:
        with (
            TemporaryFile() as nothing,
            TemporaryFile() as output,
            writing(output) as file,
            open(slave, "w", encoding="utf-8") as terminal,
            ExitStack() as stack,
        ):
            given: IO[bytes] = nothing
            if typed is not None:
                os.write(master, typed.encode())
                given = stack.enter_context(open(os.dup(slave), "rb", buffering=0))
            streams = Streams(given, terminal if all_of_it else file, terminal)
            environment = {**os.environ, "TERM": kind, "COLUMNS": str(columns)}
            code = run_on(streams, [*map(str, arguments)], environment)
            file.flush()
            output.seek(0)
            out = output.read().decode()
    finally:
        reading.join()
        os.close(master)
    return CommandResult(code, out, shown.decode())


def _read(master: int, shown: bytearray) -> None:
    with suppress(OSError):  # The other side is closed.
        while piece := os.read(master, 1 << 16):
            shown += piece
