"""The commands of docs/security/guarding.md do what it says, as they stand there."""

import json
import re
import shlex
import ssl
import subprocess
from pathlib import Path

import pytest

from horolog import Admin, Security
from horolog.protocol.api.kafka import frames as encoding
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.testing.access import log_in_to_kafka
from horolog.testing.program import READY, Program
from horolog.testing.wire import wire

from .conftest import PASSWORD

PAGE = Path("docs") / "security" / "guarding.md"
HOST = "log.example.com"


@pytest.fixture
def blocks(root: Path) -> list[str]:
    """What stands on the page for a shell."""
    found = re.findall(r"^```sh\n(.*?)^```", (root / PAGE).read_text("utf-8"), re.MULTILINE | re.S)
    assert len(found) == 3
    return found


def commands(block: str) -> list[str]:
    """Its commands, each in one line."""
    lines = block.replace("\\\n", " ").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def shell(command: str, folder: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


async def test_the_set_up_in_ten_lines(blocks: list[str], tmp_path: Path) -> None:
    """Of another host and on free ports; the password is not typed."""
    assert blocks[0].count("\n") <= 14
    *made, user, serve = commands(
        blocks[0].replace(HOST, "localhost").replace("/var/lib/horolog", "data")
    )
    for command in made:
        shell(command, tmp_path)
    horolog = Program(cwd=tmp_path)
    horolog.ok(*shlex.split(user)[1:], "--password-file", "-", stdin=PASSWORD)
    assert "0.0.0.0" in serve
    served = re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", serve)
    with horolog.running(*shlex.split(served)[1:]) as process:
        assert process.stdout is not None
        ready = READY.fullmatch(process.stdout.readline())
        assert ready is not None, process.stderr
        native, kafka = (
            f"localhost:{ready[name].rpartition(':')[2]}" for name in ("native", "kafka")
        )
        security = Security(ca=str(tmp_path / "root.pem"), user="alice", password=PASSWORD)
        async with Admin(f"tls://{native}", security=security) as admin:
            await admin.create_topic("clicks")
            assert list(await admin.list_topics()) == ["clicks"]
        trusting = ssl.create_default_context(cafile=tmp_path / "root.pem")
        async with wire(kafka, encoding, trusting) as client:
            await log_in_to_kafka(client, "alice", PASSWORD)
            assert (await client.call(MetadataRequest(topics=[]))).brokers


def test_the_rules_before_the_first_start(blocks: list[str], tmp_path: Path) -> None:
    horolog = Program()
    *added, asked = [
        shlex.split(command.replace("DIR", str(tmp_path / "data")))[1:]
        for command in commands(blocks[-1])
    ]
    for arguments in added:
        horolog.ok(*arguments)
    decided = json.loads(horolog.ok(*asked, "--json").out)
    assert (decided["allowed"], decided["reason"]) == (True, "allowed by a rule")
