"""docs/kafka-windows.md: its commands and its program, with the output that it shows."""

from collections.abc import Callable
from pathlib import Path

import pytest

from horolog.tests.pages.shell import Shell, blocks, commands, comparable

PAGE = "kafka-windows.md"


@pytest.mark.timeout(120)
def test_the_page_shows_what_happens(tmp_path: Path, require_program: Callable[[str], str]) -> None:
    require_program("kcat")
    session = blocks(PAGE)
    assert len(session) == 3
    with Shell(tmp_path) as shell:
        for name, written in session.items():
            if "." in name:
                real = written.replace("7092", shell._port("7092"))
                (tmp_path / name).write_text(real)
            else:
                assert commands(written)
                assert comparable(shell.run(written)) == comparable(written), name
