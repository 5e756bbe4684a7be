"""Certificates made with the openssl program, and brokers with TLS and users."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from horolog.protocol.sasl.mechanisms import SCRAM_MECHANISMS
from horolog.protocol.sasl.scram import credential_of, salted_password
from horolog.server.broker import Broker
from horolog.server.security import logins
from horolog.server.security.users import UserEntry
from horolog.testing.access import change_access
from horolog.testing.broker import running_broker

PASSWORD = "wonderland-7f3a9c"
USERS = {"alice": PASSWORD, "bob": "builder-51be02"}


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


class Authority:
    """A root that signs certificates."""

    def __init__(self, folder: Path, name: str = "root") -> None:
        self.folder = folder
        self._name = name
        folder.mkdir(parents=True, exist_ok=True)
        self.cert, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", self._key),
            *("-out", self.cert),
        )

    def issue(self, name: str, subject: str = "/CN=localhost", days: int = 1) -> Pair:
        """A certificate for localhost and 127.0.0.1."""
        made = Pair(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        request, more = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        more.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", subject, "-keyout", made.key, "-out", request),
        )
        openssl(
            *("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self._key),
            *("-CAcreateserial", "-days", str(days), "-extfile", more, "-out", made.cert),
        )
        return made

    def trusting(self, pair: Pair | None = None) -> ssl.SSLContext:
        """A client's context that trusts this root, with a certificate of its own perhaps."""
        context = ssl.create_default_context(cafile=self.cert)
        if pair is not None:
            context.load_cert_chain(pair.cert, pair.key)
        return context


def openssl(*arguments: str | Path) -> None:
    program = shutil.which("openssl")
    assert program is not None, "the openssl program is not installed"
    subprocess.run([program, *map(str, arguments)], check=True, capture_output=True)


async def openssl_client(address: str, version: str) -> asyncio.subprocess.Process:
    """A client of the openssl program whose handshake is done."""
    process = await asyncio.create_subprocess_exec(
        *("openssl", "s_client", "-connect", address, version),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    said = b""
    while b"Verify return code" not in said:
        more = await process.stdout.read(1 << 16)
        assert more, said
        said += more
    return process


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def pair(authority: Authority) -> Pair:
    """The broker's certificate."""
    return authority.issue("broker")


def add_users(broker: Broker, **users: str) -> None:
    """Give users passwords, for every mechanism."""
    changes = []
    for name, password in users.items():
        for mechanism in SCRAM_MECHANISMS.values():
            salt = f"salt of {name}".encode()
            salted = salted_password(mechanism, password, salt, 4096)
            changes.append([UserEntry(name, credential_of(mechanism, salted, salt, 4096))])
    outcomes = change_access(broker, lambda: broker.security.users.planned(changes))
    assert outcomes == [None] * len(changes)


class StandingLoop:
    """The running loop, in which no time passes."""

    def __init__(self) -> None:
        self.run_in_executor = asyncio.get_running_loop().run_in_executor

    def time(self) -> float:
        return 100.0


def login_waits(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long logins at a broker are kept waiting from now on, in their order. They do not wait,
    and to compute takes no time."""
    waits: list[float] = []

    async def waited(seconds: float) -> None:
        waits.append(seconds)

    patched = ModuleType("asyncio")
    vars(patched).update({**vars(asyncio), "sleep": waited})
    monkeypatch.setattr(logins, "asyncio", patched)
    monkeypatch.setattr(broker.security.logins, "_loop", StandingLoop())
    return waits


Guarded = Callable[..., AbstractAsyncContextManager[Broker]]


@pytest.fixture
def guarded(tmp_path: Path, pair: Pair) -> Guarded:
    """Starts brokers with TLS and users on all ports; settings as of `running_broker`."""

    @asynccontextmanager
    async def start(**settings: object) -> AsyncIterator[Broker]:
        given: dict[str, Any] = {
            "listen": "tls://127.0.0.1:0",
            "kafka_listen": "SASL_SSL://127.0.0.1:0",
            "http_listen": "tls://127.0.0.1:0",
            "authentication": "required",
            "tls_cert": pair.cert,
            "tls_key": pair.key,
            "sasl_enabled_mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
            **settings,
        }
        async with running_broker(tmp_path / "data", **given) as broker:
            add_users(broker, **USERS)
            yield broker

    return partial(start)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return Path(__file__).resolve().parents[2]
