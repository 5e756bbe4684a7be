"""The Python and the commands of docs/security/clients.md, at a guarded Horolog broker."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog import Admin, Security
from horolog.testing.broker import BrokerThread
from horolog.testing.program import Program
from horolog.tests.pages.python import examples, run_example

from .listeners import PASSWORD, Certificates
from .users import add_user

PAGE = Path(__file__).parents[2] / "docs" / "security" / "clients.md"
EXAMPLES = [one for one in examples(PAGE) if "spark." not in one]
COMMANDS = re.findall(r"^\$ horolog (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def broker(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerThread]:
    data_dir = tmp_path_factory.mktemp("page") / "data"
    add_user(data_dir, "alice", PASSWORD)
    pair = certificates.authority.signed("page", "IP:127.0.0.1")
    settings: dict[str, object] = {
        "listen": "tls://127.0.0.1:0",
        "kafka.listen": "SASL_SSL://127.0.0.1:0",
        "authentication": "required",
        "tls.cert": pair.certificate,
        "tls.key": pair.key,
    }
    with BrokerThread(data_dir, settings) as started:
        yield started


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\n")
    return path


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
async def test_an_example_runs(
    broker: BrokerThread, certificates: Certificates, password: Path, number: int
) -> None:
    assert broker.kafka_address is not None
    named = {
        "broker.example:7070": broker.address,
        "broker.example:9093": broker.kafka_address,
        "/etc/horolog/ca.pem": certificates.ca,
        "/etc/horolog/password": str(password),
    }
    await run_example(EXAMPLES[number], named)
    if "produce" in EXAMPLES[number] or "send" in EXAMPLES[number]:
        security = Security(ca=certificates.ca, user="alice", password=PASSWORD)
        async with Admin(f"tls://{broker.address}", security=security) as admin:
            assert "clicks" in await admin.list_topics()
            await admin.delete_topic("clicks")


def test_the_commands_run(
    broker: BrokerThread, certificates: Certificates, password: Path, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_text(Path(certificates.ca).read_text())
    horolog = Program(None, {"XDG_CONFIG_HOME": str(tmp_path / "config")}, tmp_path)
    assert len(COMMANDS) == 5
    for command in COMMANDS:
        text = command.replace("broker.example:7070", broker.address)
        text = text.replace("secret-tool lookup horolog alice", f"cat {password}")
        horolog.ok(*shlex.split(text))
