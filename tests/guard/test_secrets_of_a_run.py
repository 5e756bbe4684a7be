"""A run of the program with every kind of secret, and none of them in anything that it shows."""

import asyncio
import io
import json
import ssl
import subprocess
import sys
import threading
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.cookiejar import CookieJar
from pathlib import Path

import pytest
from kafka import KafkaProducer

from horolog import Admin, Security
from horolog.protocol.sasl.mechanisms import SCRAM_MECHANISMS
from horolog.protocol.sasl.scram import credential_of
from horolog.storage.metadata.access_records import AccessState
from horolog.testing.access import StoredAccess, log_in
from horolog.testing.program import Program, ServerProcess, serving
from horolog.testing.wire import wire

from .conftest import Authority, Guarded, Pair, openssl

PASSWORD, LATER = "first-password-81c0f2", "later-password-5e77ab"
GUESS, KEY_PASSWORD = "guessed-password-2b9d", "key-password-c4410e"
PAGES = ("/", "/login", "/page/topics", "/page/broker", "/metrics", "/healthz", "/readyz", "/none")


class Secrets:
    """What may be nowhere, in the forms in which it could be."""

    def __init__(self) -> None:
        self.forms: dict[bytes, str] = {}

    def add(self, secret: str | bytes, name: str) -> None:
        data = secret.encode() if isinstance(secret, str) else secret
        for form in (data, b64encode(data).rstrip(b"="), data.hex().encode()):
            self.forms[form] = name

    def found_in(self, shown: bytes) -> set[str]:
        return {name for form, name in self.forms.items() if form in shown}


class Shown:
    """What was shown, by where."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}

    def add(self, where: str, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        self.texts[where] = self.texts.get(where, b"") + data + b"\n"

    @contextmanager
    def watching_processes(self) -> Iterator[None]:
        """Arguments and environments of all processes meanwhile, as `ps auxe` shows them."""
        done = threading.Event()

        seen: set[bytes] = set()

        def watch() -> None:
            while not done.wait(0.1):
                for process in Path("/proc").glob("[0-9]*"):
                    with suppress(OSError):
                        command = (process / "cmdline").read_bytes()
                        if b"horolog" in command and command not in seen:
                            seen.add(command)
                            self.add("ps", command + b" " + (process / "environ").read_bytes())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


@pytest.fixture
def secrets() -> Secrets:
    found = Secrets()
    for secret in (PASSWORD, LATER, GUESS, KEY_PASSWORD):
        found.add(secret, secret)
    for secret in (PASSWORD, LATER, GUESS):
        found.add(f"alice:{secret}", f"basic {secret}")
        found.add(f"\0alice\0{secret}", f"plain {secret}")
    return found


@pytest.fixture
def server(pair: Pair, tmp_path: Path) -> Iterator[ServerProcess]:
    """A broker on TLS whose key is locked, which tells everything."""
    locked, password = tmp_path / "locked.pem", tmp_path / "key-password"
    password.write_text(KEY_PASSWORD)
    openssl(*("pkcs8", "-topk8", "-in", pair.key, "-out", locked, "-passout", f"file:{password}"))
    settings = {
        "tls.cert": pair.cert,
        "tls.key": locked,
        "tls.key.password.file": password,
        "authentication": "required",
        "authorization": "on",
        "super.users": "User:alice",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
        "log.level": "debug",
    }
    data = tmp_path / "data"
    add = ("user", "add", "alice", "--password-file", "-", "--data-dir", data)
    Program().ok(*add, stdin=PASSWORD)
    with serving(
        data,
        *("--listen", "tls://127.0.0.1:0", "--http-listen", "tls://127.0.0.1:0"),
        *("--kafka-listen", "SASL_SSL://127.0.0.1:0"),
        *(text for name, value in settings.items() for text in ("--set", f"{name}={value}")),
        own_process=True,  # `ps` shows its arguments.
    ) as started:
        yield started


async def test_a_run(
    server: ServerProcess, authority: Authority, secrets: Secrets, tmp_path: Path
) -> None:
    shown = Shown()
    with shown.watching_processes():
        await asyncio.to_thread(use_commands, server, authority, shown, tmp_path)
        await asyncio.to_thread(use_kafka, server, authority, shown)
        await asyncio.to_thread(use_page, server, authority, shown, secrets)
        # Each that fails makes those behind it slower.
        await asyncio.to_thread(use_a_wrong_password, server, authority, shown, tmp_path)
    await use_client(server, authority, shown)
    server.stop()
    add_keys(StoredAccess(server.data_dir).state, secrets)
    shown.add("log", server.log.read_bytes())
    assert server.process.stdout is not None
    shown.add("standard output", server.process.stdout.read())
    assert {where: secrets.found_in(text) for where, text in shown.texts.items()} == {
        where: set() for where in shown.texts
    }
    # What is meant to be there is: else nothing was looked at.
    assert b"login_failed" in shown.texts["log"]
    assert b"user_changed" in shown.texts["log"]
    assert b"horolog_logins_total" in shown.texts["page"]
    assert b"--password-file" in shown.texts["ps"]
    assert {"commands", "kafka", "client", "page", "ps", "log", "help"} <= shown.texts.keys()


def use_commands(server: ServerProcess, authority: Authority, shown: Shown, folder: Path) -> None:
    horolog = commands(server, authority, folder, PASSWORD)
    command = f"cat {folder / PASSWORD[:5]}"
    for arguments, given in (
        (("produce", "clicks"), "a message\n"),
        (("user", "add", "bob", "--password-file", "-"), LATER),
        (("user", "password", "bob", "--password-file", "-"), PASSWORD),
        (("user", "list", "--json"), ""),
        (("doctor", "--json"), ""),
        (
            (
                "profile",
                "add",
                "p",
                "--server",
                "tls://localhost:7070",
                "--password-command",
                command,
            ),
            "",
        ),
        (("profile", "list"), ""),
    ):
        done = horolog.ok(*arguments, stdin=given)
        shown.add("commands", done.out + done.err)
    helping = [sys.executable, "-m", "horolog.cli.reference"]
    shown.add("help", subprocess.run(helping, capture_output=True, check=True).stdout)


def use_a_wrong_password(
    server: ServerProcess, authority: Authority, shown: Shown, folder: Path
) -> None:
    refused = commands(server, authority, folder, GUESS)
    for arguments in (("topic", "list"), ("doctor", "--json")):
        done = refused(*arguments)
        assert done.code == 1
        shown.add("commands", done.out + done.err)


def commands(server: ServerProcess, authority: Authority, folder: Path, password: str) -> Program:
    """Commands of alice with a password from a file, each in a process that others can look at."""
    path = folder / password[:5]
    path.write_text(password + "\n")
    let_in = {
        "HOROLOG_CA": str(authority.cert),
        "HOROLOG_USER": "alice",
        "HOROLOG_PASSWORD_FILE": str(path),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
    return Program(f"tls://{server.native}", let_in, own_process=True)


def use_kafka(server: ServerProcess, authority: Authority, shown: Shown) -> None:
    producer = KafkaProducer(
        bootstrap_servers=server.kafka,
        security_protocol="SASL_SSL",
        ssl_cafile=str(authority.cert),
        sasl_mechanism="PLAIN",
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
    )
    sent = producer.send("clicks", b"another").get(30)
    producer.close()
    shown.add("kafka", f"{sent}")


def use_page(server: ServerProcess, authority: Authority, shown: Shown, secrets: Secrets) -> None:
    """As a browser that is logged in; the cookie of its session is a secret too."""
    cookies = CookieJar()
    opener = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=authority.cert)),
        urllib.request.HTTPCookieProcessor(cookies),
    )

    def ask(path: str, body: dict[str, str] | None = None) -> None:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"https://{server.http}{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with opener.open(request) as answer:
                shown.add("page", answer.read())
        except urllib.error.HTTPError as error:
            with error:
                shown.add("page", error.read())

    ask("/login", {"user": "alice", "password": PASSWORD})
    (session,) = list(cookies)
    assert session.value
    secrets.add(session.value, "session")
    for path in PAGES:
        ask(path)
    ask("/login", {"user": "alice", "password": GUESS})


async def use_client(server: ServerProcess, authority: Authority, shown: Shown) -> None:
    security = Security(ca=str(authority.cert), user="alice", password=PASSWORD)
    async with Admin(f"tls://{server.native}", security=security) as admin:
        shown.add("client", f"{admin!r} {security!r} {security} {await admin.broker_settings()}")
    wrong = Security(ca=str(authority.cert), user="alice", password=GUESS)
    try:
        async with Admin(f"tls://{server.native}", security=wrong) as admin:
            await admin.list_topics()
    except Exception as error:
        shown.add("client", repr(error) + str(error.__cause__) + str(error.__context__))
    else:
        pytest.fail("a wrong password was let in")


def add_keys(stored: AccessState, secrets: Secrets) -> None:
    """The keys of users, by which who has them can pretend to be the broker."""
    found = {stored.decoy_key: "decoy_key"}
    for held in stored.users.values():
        for each in held.values():
            found |= {each.salt: "salt", each.stored_key: "stored_key"}
            found[each.server_key] = "server_key"
    assert len(found) > 3
    for value, name in found.items():
        secrets.add(value, name)


async def test_a_traceback(
    guarded: Guarded, authority: Authority, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a failure of our own, in the middle of a login: the password is in its variables."""
    log = io.StringIO()

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a failure of our own")

    async with guarded(log_stream=log, log_level="debug") as broker:
        monkeypatch.setattr(type(broker.security.users), "any_credential", fail)
        async with wire(broker.addresses.native, tls=authority.trusting()) as client:
            with pytest.raises(Exception) as refused:  # noqa: PT011 - whatever it is
                await log_in(client, "alice", PASSWORD, "PLAIN")
    assert "a failure of our own" in log.getvalue()
    assert "Traceback" in log.getvalue()
    assert not secrets.found_in((log.getvalue() + repr(refused.value)).encode())


def test_the_search_finds_each_form(secrets: Secrets) -> None:
    mechanism = SCRAM_MECHANISMS["SCRAM-SHA-512"]
    stored = credential_of(mechanism, b"x" * mechanism.hash_bytes, b"salt" * 4, 4096)
    secrets.add(stored.stored_key, "key")
    for form in (PASSWORD.encode(), b64encode(f"\0alice\0{PASSWORD}".encode())):
        assert secrets.found_in(b"before " + form + b" behind")
    assert secrets.found_in(stored.stored_key.hex().encode()) == {"key"}
    assert not secrets.found_in(b"nothing of the kind")
