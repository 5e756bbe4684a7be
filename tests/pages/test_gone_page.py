"""docs/gone.md: one session from its beginning to its end, with the output it shows."""

from pathlib import Path

from horolog.testing.broker import BrokerThread

from .shell import Shell, blocks, comparable


def test_the_page_shows_what_happens(tmp_path: Path, horolog_broker: BrokerThread) -> None:
    session = blocks("gone.md")
    assert len(session) == 3
    with Shell(tmp_path, {"HOROLOG_SERVER": horolog_broker.address}) as shell:
        for name, written in session.items():
            assert comparable(shell.run(written)) == comparable(written), name
