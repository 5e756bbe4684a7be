"""How to be let in, as a value: what goes together, what is shown, what is handed on."""

import copy
import pickle
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import pytest

from horolog import (
    Admin,
    Mechanism,
    SecretCommand,
    SecretFile,
    SecretVariable,
    Security,
    SecurityError,
)
from horolog.client.cluster.servers import parse_servers, with_security
from horolog.client.security.options import NAMES, from_options, to_options
from horolog.client.security.security import MAX_SECRET_BYTES, Secret

SECRET = "correct-horse-7213"


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"user": "a"}, "the user a has no password"),
        ({"password": SECRET}, "a password and no user"),
        ({"user": "", "password": SECRET}, "needs a user"),
        ({"mechanism": "PLAIN"}, "PLAIN needs a user"),
        ({"mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs a token"),
        ({"mechanism": "OAUTHBEARER", "token": SECRET, "user": "a"}, "leave user out"),
        ({"mechanism": "PLAIN", "token": SECRET, "user": "a"}, "a token is for OAUTHBEARER"),
        ({"mechanism": "GSSAPI", "user": "a", "password": SECRET}, "'GSSAPI' is no mechanism"),
        ({"key": "k"}, "a key and no certificate"),
        ({"key_password": SECRET}, "a password of a key and no certificate"),
        ({"tls": False, "ca": "ca.pem"}, "ca is for TLS"),
        ({"tls": False, "certificate": "c.pem"}, "certificate is for TLS"),
        (
            {"tls": False, "mechanism": "PLAIN", "user": "a", "password": SECRET},
            "everybody on the way can read it",
        ),
        ({"tls": False, "token": SECRET}, "everybody on the way can read it"),
    ],
)
def test_what_does_not_go_together(options: dict[str, str], wrong: str) -> None:
    with pytest.raises(SecurityError, match=wrong) as caught:
        Security(**options)  # type: ignore[arg-type]
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_the_mechanism_that_is_taken() -> None:
    assert Security().mechanism is None
    assert Security(user="a", password="p").mechanism is Mechanism.SCRAM_SHA_512
    assert Security(token="t").mechanism is Mechanism.OAUTHBEARER
    named = Security(user="a", password="p", mechanism="scram-sha-256")  # type: ignore[arg-type]
    assert named.mechanism is Mechanism.SCRAM_SHA_256


FULL = Security(
    ca="ca.pem",
    certificate="c.pem",
    key="k.pem",
    key_password=f"{SECRET}-1",
    user="alice",
    password=f"{SECRET}-2",
)


def test_no_secret_is_shown() -> None:
    servers = with_security("tls://a:1", FULL)
    for shown in (repr(FULL), str(FULL), f"{FULL}", repr(servers), str(servers)):
        assert SECRET not in shown
    # What shows the values of variables shows each field.
    assert SECRET not in repr([getattr(FULL, name) for name in Security.__slots__])
    assert "alice" in repr(FULL)


def test_it_can_be_copied_and_handed_to_another_process() -> None:
    other = pickle.loads(pickle.dumps(FULL))
    assert other == FULL == copy.copy(FULL)
    assert hash(other) == hash(FULL)
    assert isinstance(other.password, Secret)
    assert other.password.read() == f"{SECRET}-2"
    assert replace(FULL, user="bob").mechanism is Mechanism.SCRAM_SHA_512


@pytest.mark.parametrize(
    ("address", "tls", "kafka"),
    [
        ("a:1", False, False),
        ("tls://a:1", True, False),
        ("kafka://a:1,b:2", False, True),
        ("kafka+tls://a:1,b:2", True, True),
    ],
)
def test_addresses_say_whether_there_is_tls(address: str, tls: bool, kafka: bool) -> None:
    servers = parse_servers(address)
    assert (servers.tls, servers.kafka, str(servers)) == (tls, kafka, address)
    assert (servers.channel is not None) == tls
    user = with_security(address, Security(user="a", password="p"))
    assert user.channel is not None
    assert user.channel.tls is tls
    everywhere = with_security(address, Security(tls=True))
    assert everywhere.channel is not None
    assert everywhere.channel.tls


def test_an_address_of_tls_and_security_without() -> None:
    with pytest.raises(SecurityError, match="leave one of them out"):
        Admin("tls://a:1", security=Security(tls=False))


@pytest.mark.parametrize("address", ["tls://", "tls://a", "kafka+tls://a:1;b:2", "tls+kafka://a:1"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_servers(address)


OPTIONS = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "alice",
    "sasl.password": SECRET,
    "ssl.ca.location": "ca.pem",
    "ssl.certificate.location": "c.pem",
    "ssl.key.location": "k.pem",
    "ssl.key.password.file": "password",
    "ssl.endpoint.identification.algorithm": "none",
}


def test_options_with_the_names_of_librdkafka() -> None:
    security = from_options(OPTIONS)
    assert security == Security(
        tls=True,
        ca="ca.pem",
        certificate="c.pem",
        key="k.pem",
        key_password=SecretFile("password"),
        check_host_name=False,
        mechanism=Mechanism.SCRAM_SHA_256,
        user="alice",
        password=SECRET,
    )
    assert to_options(security) == OPTIONS
    assert from_options({}) is None
    assert to_options(None) == {}


@pytest.mark.parametrize(
    "options",
    [
        {"sasl.username": "a", "sasl.password.env": "P", "sasl.mechanism": "SCRAM-SHA-512"},
        {"security.protocol": "SSL"},
        {"security.protocol": "PLAINTEXT"},
        {"sasl.oauthbearer.token.file": "t", "sasl.mechanism": "OAUTHBEARER"},
    ],
)
def test_options_come_back_as_they_were(options: dict[str, str]) -> None:
    assert to_options(from_options(options)) == options


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"security.protocol": "TLS"}, "it is one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "so sasl.username and sasl.password are needed"),
        (
            {"security.protocol": "SSL", "sasl.username": "a", "sasl.password": SECRET},
            "that is without authentication",
        ),
        ({"sasl.username": "a", "sasl.password": ""}, "sasl.password is empty"),
        (
            {"sasl.username": "a", "sasl.password": SECRET, "sasl.password.file": "f"},
            "sasl.password and sasl.password.file say the same",
        ),
        ({"ssl.endpoint.identification.algorithm": "no"}, "it is https, or none"),
        ({"security.protocol": "PLAINTEXT", "ssl.ca.location": "ca.pem"}, "ca is for TLS"),
    ],
)
def test_options_that_are_wrong(options: dict[str, str], wrong: str) -> None:
    with pytest.raises(SecurityError, match=wrong) as caught:
        from_options(options)
    assert SECRET not in str(caught.value)


def test_a_command_cannot_be_an_option() -> None:
    security = Security(user="a", password=SecretCommand(("print-it",)))
    with pytest.raises(SecurityError, match=r"sasl\.password comes from a function or a command"):
        to_options(security)


def test_every_secret_is_hidden_by_spark() -> None:
    """What Spark's `spark.redaction.regex` finds by default, it shows as asterisks."""
    hidden = [name for name in NAMES if "password" in name or "token" in name]
    assert len(hidden) == 9
    assert {"sasl.password", "ssl.key.password", "sasl.oauthbearer.token"} <= set(hidden)


def test_where_secrets_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b" with spaces \r\n")
    assert SecretFile(str(path)).read() == " with spaces "
    monkeypatch.setenv("A_SECRET", SECRET)
    assert SecretVariable("A_SECRET").read() == SECRET
    command = SecretCommand((sys.executable, "-c", f"print({SECRET!r})"))
    assert command.read() == SECRET


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xff", "is not UTF-8"),
        (b"x" * (MAX_SECRET_BYTES + 1), "is longer than 65536 bytes"),
    ],
)
def test_files_that_have_no_secret(tmp_path: Path, content: bytes | None, wrong: str) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SecurityError, match=wrong):
        SecretFile(str(path)).read()


def test_a_device_that_never_ends_is_no_secret() -> None:
    with pytest.raises(SecurityError, match="is longer than"):
        SecretFile("/dev/zero").read()


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (("no-such-program-here",), "cannot be run: No such file"),
        (("false",), "failed with exit code 1"),
        (("true",), "is empty"),
    ],
)
def test_commands_that_print_no_secret(words: tuple[str, ...], wrong: str) -> None:
    with pytest.raises(SecurityError, match=wrong):
        SecretCommand(words).read()


def test_a_variable_that_is_not_set() -> None:
    with pytest.raises(SecurityError, match="NO_SUCH_VARIABLE of the environment is not set"):
        SecretVariable("NO_SUCH_VARIABLE").read()
