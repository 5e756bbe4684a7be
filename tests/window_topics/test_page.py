"""docs/kafka-windows.md: its commands and its program, with the output that it shows. What needs
programs of others runs in tests/ecosystem."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path

from horolog.tests.pages.shell import Shell, blocks, commands, comparable

PAGE = "kafka-windows.md"
BLOCKS = ("session", "window.py", "notebook")
OTHERS = {
    "java": (),
    "spark": ("spark-window.py",),
    "flink": ("Window.java",),
    "duckdb": ("duckdb-window.py",),
}
"""The sessions with programs of others, and the files that these have on the page."""


def test_the_page_shows_what_happens(tmp_path: Path, require_program: Callable[[str], str]) -> None:
    require_program("kcat")
    page = blocks(PAGE)
    assert set(page) == {*BLOCKS, *OTHERS, *chain.from_iterable(OTHERS.values())}
    with Shell(tmp_path) as shell:
        for name in BLOCKS:
            written = page[name]
            if "." in name:
                real = written.replace("7092", shell._port("7092"))
                (tmp_path / name).write_text(real)
            else:
                assert commands(written)
                assert comparable(shell.run(written)) == comparable(written), name
