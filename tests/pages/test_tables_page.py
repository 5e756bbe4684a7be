"""docs/tables.md: windows as Parquet files and as Arrow tables, with the output it shows."""

from pathlib import Path

from horolog.testing.broker import BrokerThread

from .shell import Shell, blocks, comparable


def test_the_page_shows_what_happens(tmp_path: Path, horolog_broker: BrokerThread) -> None:
    session = blocks("tables.md")
    assert len(session) == 4
    with Shell(tmp_path, {"HOROLOG_SERVER": horolog_broker.address}) as shell:
        for name, written in session.items():
            if "." in name:
                text = written.replace("127.0.0.1:7070", horolog_broker.address)
                (tmp_path / name).write_text(text)
            else:
                assert comparable(shell.run(written)) == comparable(written), name
