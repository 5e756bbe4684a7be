"""docs/everyday.md: one session from its beginning to its end, with the output it shows."""

from pathlib import Path

from .shell import Shell, blocks, commands, comparable

PAGE = "everyday.md"


def test_the_page_shows_what_happens(tmp_path: Path) -> None:
    session = blocks(PAGE)
    assert len(session) > 5
    with Shell(tmp_path) as shell:
        for name, written in session.items():
            assert commands(written)
            assert comparable(shell.run(written)) == comparable(written), name
