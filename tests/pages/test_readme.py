"""README.md: its session and its Python, against a broker with the settings that it starts with."""

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from horolog.testing.program import serving

from .python import examples, run_example
from .shell import Shell, commands, comparable

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = README.read_text(encoding="utf-8").split("\n```\n")
CLUSTER = "kafka://broker-1:9092,broker-2:9092"


async def test_what_the_readme_shows_happens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    following, session, by_kcat, elsewhere = [block for block in BLOCKS if block.startswith("$ ")]
    assert CLUSTER in elsewhere
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    with serving(tmp_path / "data", "--kafka-listen", "127.0.0.1:0") as server:
        assert server.kafka is not None
        with Shell(tmp_path, {"HOROLOG_SERVER": server.native}) as shell:
            assert comparable(shell.run(session)) == comparable(session)
            at_the_cluster = shell.run(elsewhere.replace(CLUSTER, f"kafka://{server.kafka}"))
            assert "no positions are stored" in at_the_cluster
        for example in examples(README):
            await run_example(
                example, {"127.0.0.1:7070": server.native, "127.0.0.1:9092": server.kafka}
            )
            assert capsys.readouterr().out
        if shutil.which("kcat"):
            with Shell(tmp_path) as shell:
                window = shell.run(by_kcat.replace("127.0.0.1:9092", server.kafka))
            assert window.splitlines()[1:] == by_kcat.splitlines()[1:]
        server.program.ok("produce", "demo-load", stdin="a sample\n")
        (command,) = commands(following)
        with server.program.running(*shlex.split(command)[2:]) as process:
            assert process.stdout is not None
            assert "a sample" in process.stdout.readline()
        assert "messages_past_retention" not in server.log.read_text(), "a reader would lose it"
