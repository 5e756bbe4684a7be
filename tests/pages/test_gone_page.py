"""docs/gone.md: the session with `horolog explain gone`, with the output it shows."""

from pathlib import Path

from horolog.testing.broker import BrokerThread

from .shell import Shell, blocks, comparable


def test_the_page_shows_what_happens(tmp_path: Path, horolog_broker: BrokerThread) -> None:
    (written,) = blocks("gone.md").values()
    with Shell(tmp_path, {"HOROLOG_SERVER": horolog_broker.address}) as shell:
        assert comparable(shell.run(written)) == comparable(written)
