"""One broker with TLS, users and rules for all clients, and each client in each of its ways."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from horolog.testing.issuer import Issuer, token_settings
from horolog.testing.ports import free_ports
from horolog.testing.program import Program, ServerProcess, serving

from ..access import Access
from ..client import Client
from ..java_client import JavaClient, class_path
from ..matrix import PROGRAMS
from ..ours import HorologNative
from .stores import Files, made
from .ways import CERTIFICATE, OAUTHBEARER, Way, is_java

USER: Final = "clara"
PASSWORD: Final = "clara-secret-2291"
SUBJECT: Final = "carol"
"""Of the client's own certificate."""
TOPICS: Final = "ours."
"""Topics whose name begins so may be used, and no others."""
HIDDEN: Final = "theirs"
GROUPS: Final = ("of ours.", "alone-", "nobody", "console-consumer-")
"""Names of groups that may be used begin so; some clients make them up."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A broker that lets nobody in without a login or a certificate."""

    server: ServerProcess
    sasl: str
    """`HOST:PORT` for users."""
    tls: str
    """For those with certificates."""
    files: Files
    token: str = field(repr=False)
    """Of the same user."""

    @property
    def audit(self) -> list[dict[str, str]]:
        """What the audit tells so far."""
        lines = self.server.log.read_text().splitlines()
        found = [json.loads(line) for line in lines if '"audit"' in line]
        return [one for one in found if one["logger"] == "audit"]


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    files = made(folder, SUBJECT)
    data_dir = folder / "data"
    _let_in(data_dir)
    sasl, tls = (f"127.0.0.1:{port}" for port in free_ports(2))
    settings = {
        "tls.cert": files.broker,
        "tls.key": files.broker_key,
        "tls.client.ca": files.ca,
        "tls.client.auth": "requested",
        "authentication": "required",
        "authorization": "on",
        "group.min.session.timeout.ms": 100,
        "retention.ms": -1,
        "log.format": "json",
    }
    issuer = Issuer()
    for name, value in token_settings(issuer.write(folder / "keys.json")).items():
        settings[name.replace("_", ".")] = value
    with serving(
        data_dir,
        *("--kafka-listen", f"SASL_SSL://{sasl}", "--kafka-listen", f"SSL://{tls}"),
        *("--listen", "tls://127.0.0.1:0"),
        *(text for name, value in settings.items() for text in ("--set", f"{name}={value}")),
    ) as server:
        yield Guarded(server, sasl, tls, files, issuer.token(USER))


def _let_in(data_dir: Path) -> None:
    """The user, and what it and the certificate may do."""
    horolog = Program()
    offline = ("--data-dir", data_dir)
    horolog.ok("user", "add", USER, "--password-file", "-", *offline, stdin=PASSWORD)
    who = [text for name in (USER, f"CN={SUBJECT}") for text in ("--allow", f"User:{name}")]
    operations = [text for each in ("Read", "Write", "Create") for text in ("--operation", each)]
    horolog.ok("acl", "add", *who, *operations, "--topic", TOPICS, "--prefixed", *offline)
    for group in GROUPS:
        horolog.ok(
            *("acl", "add", *who, "--operation", "Read"),
            *("--group", group, "--prefixed", *offline),
        )


@pytest.fixture(scope="module")
def started(guarded: Guarded) -> Iterator[dict[Way, Client]]:
    """Clients that run; the last one alone, for each of Java's is a process of its own."""
    found: dict[Way, Client] = {}
    yield found
    for client in found.values():
        client.close()


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Way:
    found: Way = request.param
    return found


@pytest.fixture
def client(
    request: pytest.FixtureRequest, way: Way, guarded: Guarded, started: dict[Way, Client]
) -> Client:
    """The client that a test is for."""
    for program in PROGRAMS.get(way.kind, ()):
        request.getfixturevalue("require_program")(program)
    if is_java(way.kind):
        request.getfixturevalue("require_apache_kafka")
    if issubclass(way.kind, JavaClient):
        class_path(way.kind.version)
    if way not in started:
        for other in list(started):
            started.pop(other).close()
        address = guarded.tls if way.mechanism == CERTIFICATE else guarded.sasl
        if way.kind is HorologNative:
            address = guarded.server.native
        started[way] = way.kind(address, access(way, guarded.files, guarded.token))
    return started[way]


def access(way: Way, files: Files, token: str) -> Access:
    """How a client is let in."""
    trust = files.trust[way.form]
    if way.mechanism == CERTIFICATE:
        return Access(
            files.ca,
            certificate=files.client,
            key=files.client_key,
            trust=trust,
            keys=files.keys[way.form],
        )
    if way.mechanism == OAUTHBEARER:
        return Access(files.ca, way.mechanism, token=token, trust=trust)
    return Access(files.ca, way.mechanism, USER, PASSWORD, trust=trust)


@pytest.fixture
def topic(way: Way, request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    test = request.node.originalname.removeprefix("test_")
    kind = way.name.replace(",", "").lower()
    return f"{TOPICS}{test}.{kind}"
