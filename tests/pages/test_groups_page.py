"""docs/groups.md: the session with `horolog group`, with the output it shows."""

from pathlib import Path

from horolog.testing.broker import BrokerThread

from .shell import Shell, blocks, commands, comparable


def test_the_page_shows_what_happens(tmp_path: Path, horolog_broker: BrokerThread) -> None:
    session = blocks("groups.md")
    assert len(session) > 5
    address = horolog_broker.address
    with Shell(tmp_path, {"HOROLOG_SERVER": address}) as shell:
        for name, written in session.items():
            if "." in name:
                text = written.replace("blocking.Admin()", f"blocking.Admin({address!r})")
                (tmp_path / name).write_text(text)
            else:
                assert commands(written)
                assert comparable(shell.run(written)) == comparable(written), name
