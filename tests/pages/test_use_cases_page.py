"""Pages that are one session from its beginning to its end, with the output they show."""

from pathlib import Path

import pytest

from .shell import Shell, blocks, commands, comparable


@pytest.mark.parametrize("page", ["use-cases.md", "messages.md"])
def test_the_page_shows_what_happens(tmp_path: Path, page: str) -> None:
    session = blocks(page)
    assert len(session) > 5
    with Shell(tmp_path) as shell:
        for name, written in session.items():
            if "." in name:
                (tmp_path / name).write_text(written)
            else:
                assert commands(written)
                assert comparable(shell.run(written)) == comparable(written), name
