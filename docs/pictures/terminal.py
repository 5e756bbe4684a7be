"""Takes the picture of a terminal that the README shows: `make pictures`."""

import io
import json
import re
import shlex
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from horolog.testing.program import Program, serving
from horolog.times import parse_time

PICTURE: Final = Path(__file__).resolve().parent / "terminal.svg"
MINUTES: Final = ("01", "03", "02", "09", "04", "05", "08")
COMMANDS: Final = (
    "horolog consume clicks",
    "horolog offsets clicks --at 2016-11-14T14:05:00Z",
    "horolog explain offset clicks --at 2016-11-14T14:05:00Z",
    "horolog consume clicks --from 2016-11-14T14:05:00Z --json",
)
_OUTSIDE: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""Fonts that a reader's browser would have to fetch from elsewhere."""


def main() -> None:
    console = Console(record=True, width=100, file=io.StringIO())
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "data") as server:
        horolog = Program(server.native)
        horolog.ok("topic", "create", "clicks", "--set", "retention.ms=-1")
        lines = [
            json.dumps({"value": f"click of 14:{minute}", "timestamp_ms": parse_time(time, 0)})
            for minute in MINUTES
            for time in [f"2016-11-14T14:{minute}:00Z"]
        ]
        horolog.ok("produce", "clicks", "--json", stdin="\n".join(lines) + "\n")
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            console.print(Text(horolog.ok(*shlex.split(command)[1:]).out))
    svg = console.export_svg(title="Which offset was it at 14:05?", unique_id="horolog")
    PICTURE.write_text(_OUTSIDE.sub("", svg))


if __name__ == "__main__":
    main()
