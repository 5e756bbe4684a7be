"""Users: the file, the program, and Kafka's requests about them."""

import asyncio
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin as kafka_admin
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import KafkaAdminClient
from kafka.admin import _users

from horolog.protocol.api.security.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramDeletion,
    ScramUpsertion,
    UserName,
)
from horolog.protocol.errors import CodedError, SaslAuthenticationFailed, StorageError
from horolog.protocol.sasl.mechanisms import SCRAM_MECHANISMS
from horolog.protocol.sasl.scram import (
    ScramCredential,
    credential_of,
    password_matches,
    salted_password,
)
from horolog.server.broker import Broker
from horolog.server.security.users import CredentialRemoval, UserEntry, Users
from horolog.storage.files import SystemFiles
from horolog.testing.access import StoredAccess, log_in
from horolog.testing.broker import running_broker
from horolog.testing.files import FaultyFiles
from horolog.testing.program import Program, serving
from horolog.testing.wire import wire

from .conftest import PASSWORD, Authority, Guarded
from .test_real_clients import kafka_python, librdkafka

ADMIN: Any = kafka_admin
SHA_256, SHA_512 = SCRAM_MECHANISMS.values()


class StoredUsers(Users):
    """Users in a data directory."""

    def __init__(self, path: Path) -> None:
        self.stored = StoredAccess(path)
        super().__init__(lambda: self.stored.state, os.urandom)

    def change(self, groups: Any) -> list[CodedError | None]:
        return self.stored.change(lambda: self.planned(groups))


def users(path: Path) -> StoredUsers:
    return StoredUsers(path)


def credential(password: str, mechanism: Any = SHA_256) -> ScramCredential:
    salted = salted_password(mechanism, password, b"salt", 4096)
    return credential_of(mechanism, salted, b"salt", 4096)


CREDENTIALS = {each.name: credential("pw", each) for each in SCRAM_MECHANISMS.values()}
CHANGES = st.tuples(
    st.sampled_from(["a", "b", "", "x" * 256, "né"]),
    st.sampled_from([SHA_256, SHA_512]),
    st.booleans(),
)


@settings(max_examples=50, deadline=None)
@given(groups=st.lists(st.lists(CHANGES, max_size=3), max_size=8))
def test_any_changes_beside_a_plain_table(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[Any]]
) -> None:
    """Each group as a whole or not at all; what is stored is what is in memory."""
    path = tmp_path_factory.mktemp("users")
    table = users(path)
    expected: dict[str, set[str]] = {}
    for group in groups:
        trial = {name: set(found) for name, found in expected.items()}
        fine = True
        changes: list[Any] = []
        for name, mechanism, adds in group:
            if adds:
                changes.append(UserEntry(name, CREDENTIALS[mechanism.name]))
                fine = fine and 0 < len(name.encode()) <= 255
                trial.setdefault(name, set()).add(mechanism.name)
            else:
                changes.append(CredentialRemoval(name, mechanism))
                fine = fine and mechanism.name in trial.get(name, ())
                trial.get(name, set()).discard(mechanism.name)
                if not trial.get(name):
                    trial.pop(name, None)
        (outcome,) = table.change([changes])
        assert (outcome is None) == fine
        if fine:
            expected = trial
    for found in (table, users(path)):
        assert found.names() == sorted(expected)
        assert {name: set(found.credentials(name)) for name in expected} == expected


def test_the_file(tmp_path: Path) -> None:
    table = users(tmp_path)
    decoy = table.credential("nobody", SHA_512)
    assert table.change([[UserEntry("alice", credential(PASSWORD))]]) == [None]
    assert table.credential("nobody", SHA_512) == decoy
    path = tmp_path / "metadata-log"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    files = [each for each in path.rglob("*") if each.is_file()]
    assert any(b"alice" in each.read_bytes() for each in files)
    for each in files:
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
        assert PASSWORD.encode() not in each.read_bytes()
    again = users(tmp_path)
    assert again.credential("nobody", SHA_512) == decoy
    assert password_matches(again.credential("alice", SHA_256), PASSWORD)
    assert not password_matches(again.any_credential("nobody"), PASSWORD)
    # A user without a password for a mechanism looks like nobody there.
    assert len(again.credential("alice", SHA_512).salt) == len(decoy.salt)


@pytest.fixture
def upsertion() -> ScramUpsertion:
    salted = salted_password(SHA_256, PASSWORD, b"salt", 4096)
    return ScramUpsertion(
        name="carol", mechanism=1, iterations=4096, salt=b"salt", salted_password=salted
    )


async def alter(broker: Broker, deletions: Any = (), upsertions: Any = ()) -> list[tuple[str, int]]:
    request = AlterUserScramCredentialsRequest(
        deletions=list(deletions), upsertions=list(upsertions)
    )
    async with wire(broker.addresses.native) as client:
        answer = await client.call(request)
    return [(result.user, result.error_code) for result in answer.results]


def changed(upsertion: ScramUpsertion, **changes: Any) -> ScramUpsertion:
    fields = ("name", "mechanism", "iterations", "salt", "salted_password")
    values = {name: getattr(upsertion, name) for name in fields} | changes
    return ScramUpsertion(**values)


async def test_what_is_wrong_with_a_change_is_told_by_user(
    tmp_path: Path, upsertion: ScramUpsertion
) -> None:
    async with running_broker(tmp_path, http_listen="off") as broker:
        outcomes = await alter(
            broker,
            [ScramDeletion(name="nobody", mechanism=1), ScramDeletion(name="x", mechanism=3)],
            [
                upsertion,
                changed(upsertion, name="few", iterations=4095),
                changed(upsertion, name="many", iterations=16_777_217),
                changed(upsertion, name="", iterations=4096),
                changed(upsertion, name="short", salted_password=b"short"),
                changed(upsertion, name="unsalted", salt=b""),
                changed(upsertion, name="twice"),
                changed(upsertion, name="twice"),
                changed(upsertion, name="most", iterations=16_777_216),
            ],
        )
        assert outcomes == [
            ("nobody", 91),
            ("x", 33),
            ("carol", 0),
            ("few", 93),
            ("many", 93),
            ("", 93),
            ("short", 93),
            ("unsalted", 93),
            ("twice", 92),
            ("most", 0),
        ]
        async with wire(broker.addresses.native) as client:
            request = DescribeUserScramCredentialsRequest(
                users=[UserName(name=name) for name in ("carol", "few", "most", "most")]
            )
            answer = await client.call(request)
        told = [(each.user, each.error_code) for each in answer.results]
        assert told == [("carol", 0), ("few", 91), ("most", 92)]


async def test_a_disk_that_refuses_changes_nothing(
    tmp_path: Path, upsertion: ScramUpsertion
) -> None:
    files = FaultyFiles(SystemFiles())
    async with running_broker(tmp_path / "data", files=files, http_listen="off") as broker:
        assert await alter(broker, (), [upsertion]) == [("carol", 0)]
        log = broker.directory.metadata.log.path / f"{0:020d}.log"
        before = log.read_bytes()
        files.fail("pwrite", errno.ENOSPC, name=log.name)
        with pytest.raises(StorageError):
            await alter(broker, (), [changed(upsertion, name="dave")])
        assert broker.security.users.names() == ["carol"]
        assert log.read_bytes() == before
        assert await alter(broker, (), [changed(upsertion, name="dave")]) == [("dave", 0)]


def done(futures: Any) -> Any:
    """The results of what an AdminClient gives."""
    if isinstance(futures, dict):
        return {name: future.result(20) for name, future in futures.items()}
    return futures.result(20)


async def test_kafkas_own_requests(guarded: Guarded, authority: Authority) -> None:
    """As kafka-configs.sh sends them, by librdkafka."""

    def administer(conf: dict[str, Any]) -> None:
        admin = ADMIN.AdminClient(conf)
        info = ADMIN.ScramCredentialInfo(ADMIN.ScramMechanism.SCRAM_SHA_512, 8192)
        wanted: list[Any] = [ADMIN.UserScramCredentialUpsertion("dave", info, b"secret-of-dave")]
        done(admin.alter_user_scram_credentials(wanted))
        found = done(admin.describe_user_scram_credentials(["dave"]))["dave"]
        (told,) = found.scram_credential_infos
        assert (told.mechanism, told.iterations) == (ADMIN.ScramMechanism.SCRAM_SHA_512, 8192)
        every = done(admin.describe_user_scram_credentials())
        assert set(every) == {"alice", "bob", "dave"}
        # What was added logs in at once.
        as_dave = {**conf, "sasl.username": "dave", "sasl.password": "secret-of-dave"}
        assert ADMIN.AdminClient(as_dave).list_topics(timeout=20).brokers
        gone: list[Any] = [
            ADMIN.UserScramCredentialDeletion("dave", ADMIN.ScramMechanism.SCRAM_SHA_512)
        ]
        done(admin.alter_user_scram_credentials(gone))

    async with guarded() as broker:
        await asyncio.to_thread(administer, librdkafka(broker, authority, "SCRAM-SHA-512"))
        assert broker.security.users.names() == ["alice", "bob"]
        async with wire(broker.addresses.native, tls=authority.trusting()) as client:
            with pytest.raises(SaslAuthenticationFailed):
                await log_in(client, "dave", "secret-of-dave")


async def test_kafkas_requests_by_kafka_python(guarded: Guarded, authority: Authority) -> None:
    """It encodes them by itself."""

    def administer(conf: dict[str, Any]) -> None:
        admin = KafkaAdminClient(**conf)
        try:
            added = _users.UserScramCredentialUpsertion(
                "dave", _users.ScramMechanism.SCRAM_SHA_256, "secret-of-dave", iterations=5000
            )
            gone = _users.UserScramCredentialDeletion("x", _users.ScramMechanism.SCRAM_SHA_512)
            outcomes = admin.alter_user_scram_credentials([gone, added])
            assert outcomes["dave"] is None
            assert "x" in str(outcomes["x"])
            told = admin.describe_user_scram_credentials(["dave"])["dave"]
            assert [each["iterations"] for each in told["credential_infos"]] == [5000]
        finally:
            admin.close()

    async with guarded() as broker:
        await asyncio.to_thread(administer, kafka_python(broker, authority, "SCRAM-SHA-256"))
        assert broker.security.users.names() == ["alice", "bob", "dave"]


def test_the_program_before_the_first_start_and_live(tmp_path: Path) -> None:
    data, secret = tmp_path / "data", tmp_path / "secret"
    secret.write_text(f"{PASSWORD}\nnot this\n")
    program = Program()
    offline = ("--data-dir", data)
    data.mkdir()
    assert program.ok("user", "list", *offline).out == "no users\n"
    program.ok("user", "add", "alice", "--password-file", secret, *offline)
    again = program("user", "add", "alice", "--password-file", secret, *offline)
    assert (again.code, "DUPLICATE_RESOURCE" in again.err) == (1, True)
    listed = json.loads(program.ok("user", "list", "--json", *offline).out)
    assert set(listed["iterations"]) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    with serving(data) as server:
        locked = program("user", "list", *offline)
        assert locked.code == 1
        assert "--server" in locked.err
        live = server.program
        live.ok("user", "add", "bob", "--password-file", "-", stdin=b"builder\n")
        listed = [json.loads(line) for line in live.ok("user", "list", "--json").out.splitlines()]
        iterations = {"SCRAM-SHA-256": 16384, "SCRAM-SHA-512": 16384}
        assert listed == [{"user": name, "iterations": iterations} for name in ("alice", "bob")]
        live.ok("user", "password", "bob", "--password-file", "-", stdin=b"another\n")
        live.ok("user", "remove", "alice")
        assert live("user", "remove", "alice").code == 1
        assert live("user", "password", "alice", "--password-file", secret).code == 1
        server.stop()
    table = users(data)
    assert table.names() == ["bob"]
    assert password_matches(table.any_credential("bob"), "another")


@pytest.mark.parametrize(
    ("stdin", "says"),
    [(b"", "1 to 1024 bytes"), (b"x" * 1025, "1 to 1024"), (b"\xff\n", "not UTF-8")],
)
def test_what_is_no_password(tmp_path: Path, stdin: bytes, says: str) -> None:
    arguments = ("user", "add", "a", "--password-file", "-", "--data-dir", tmp_path)
    refused = Program()(*arguments, stdin=stdin)
    assert refused.code == 2
    assert says in refused.err
    assert "--password-file" in Program()("user", "add", "a", "--data-dir", tmp_path).err
