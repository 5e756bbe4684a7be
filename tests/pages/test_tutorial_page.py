"""docs/tutorial.md: its commands and its program, with the output that it shows. The pages by task:
each page is named."""

from pathlib import Path

from .shell import DOCS, Shell, blocks, commands, comparable

PAGE = "tutorial.md"


def test_the_tutorial_shows_what_happens(tmp_path: Path) -> None:
    session = blocks(PAGE)
    assert len(session) == 12
    with Shell(tmp_path) as shell:
        for name, written in session.items():
            if "." in name:
                (tmp_path / name).write_text(written + "\n")
            else:
                assert commands(written)
                assert comparable(shell.run(written)) == comparable(written), name


def test_the_pages_by_task_name_every_page() -> None:
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = {str(path.relative_to(DOCS)) for path in DOCS.glob("**/*.md")}
    named = {page for page in pages if f"]({page}" in text}
    inner = {page for page in pages if page.startswith("replication/")}
    assert pages - named - inner == {"README.md"}
    assert "replication/README.md" in named
