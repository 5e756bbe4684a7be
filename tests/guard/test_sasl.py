"""SCRAM and PLAIN: RFC 5802, RFC 7677, RFC 4616."""

import base64
import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horolog.protocol.errors import SaslAuthenticationFailed
from horolog.protocol.sasl import scram
from horolog.protocol.sasl.mechanisms import (
    SCRAM_MECHANISMS,
    PlainClient,
    ScramMechanism,
    read_plain,
)
from horolog.protocol.sasl.scram import ScramClient, ScramServer

SHA_256, SHA_512 = SCRAM_MECHANISMS["SCRAM-SHA-256"], SCRAM_MECHANISMS["SCRAM-SHA-512"]

# RFC 7677, section 3.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()
SERVER_FIRST = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
CLIENT_FINAL = (
    f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
).encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential(
    password: str, mechanism: ScramMechanism = SHA_256, iterations: int = 4096
) -> scram.ScramCredential:
    salted = scram.salted_password(mechanism, password, SALT, iterations)
    return scram.credential_of(mechanism, salted, SALT, iterations)


def server(password: str = "pencil", mechanism: ScramMechanism = SHA_256) -> ScramServer:
    return ScramServer(mechanism, lambda _: credential(password, mechanism), SERVER_NONCE)


def test_the_vectors_of_rfc_7677_at_the_client() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", CLIENT_NONCE)
    assert client.first() == CLIENT_FIRST
    assert client.respond(SERVER_FIRST) == CLIENT_FINAL
    assert not client.complete
    assert client.respond(SERVER_FINAL) is None
    assert client.complete


def test_the_vectors_of_rfc_7677_at_the_server() -> None:
    exchange = server()
    assert exchange.first(CLIENT_FIRST) == SERVER_FIRST
    assert exchange.last(CLIENT_FINAL) == SERVER_FINAL
    assert exchange.name == "user"


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@settings(max_examples=30, deadline=None)
@given(NAMES, NAMES, st.sampled_from([SHA_256, SHA_512]))
def test_both_sides_agree_about_any_name_and_password(
    name: str, password: str, mechanism: ScramMechanism
) -> None:
    asked: list[str] = []

    def find(found: str) -> scram.ScramCredential:
        asked.append(found)
        return credential(password, mechanism)

    exchange = ScramServer(mechanism, find, SERVER_NONCE)
    client = ScramClient(mechanism.name, name, password, CLIENT_NONCE)
    final = client.respond(exchange.first(client.first()))
    assert final is not None
    client.respond(exchange.last(final))
    assert client.complete
    assert asked == [name]
    assert read_plain(PlainClient(name, password).first()).name == name


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_wrong_password_is_refused(mechanism: ScramMechanism) -> None:
    exchange = server("other", mechanism)
    client = ScramClient(mechanism.name, "user", "pencil", CLIENT_NONCE)
    final = client.respond(exchange.first(client.first()))
    assert final is not None
    with pytest.raises(SaslAuthenticationFailed, match="does not exist, or the password is wrong"):
        exchange.last(final)


def test_a_server_that_does_not_know_the_password_is_refused() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", CLIENT_NONCE)
    client.respond(SERVER_FIRST)
    with pytest.raises(SaslAuthenticationFailed, match="did not prove"):
        client.respond(b"v=" + base64.b64encode(bytes(32)))
    assert not client.complete


@pytest.mark.parametrize("change", range(0, len(CLIENT_FINAL), 3))
def test_no_changed_byte_of_a_proof_is_taken(change: int) -> None:
    changed = bytearray(CLIENT_FINAL)
    changed[change] ^= 1
    exchange = server()
    exchange.first(CLIENT_FIRST)
    with pytest.raises(SaslAuthenticationFailed):
        exchange.last(bytes(changed))


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (SERVER_FIRST.replace(b"4096", b"2147483648"), "2147483648 iterations"),
        (SERVER_FIRST.replace(b"4096", b"16777217"), "allowed are 4096 to 16777216"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "4095 iterations"),
        (SERVER_FIRST.replace(b"4096", b"9" * 50_000), "its i= is no number"),
        (SERVER_FIRST.replace(b"4096", b"-4096"), "its i= is no number"),
        (SERVER_FIRST.replace(b"r=rO", b"r=xO"), "does not go on from the client's"),
        (f"r={CLIENT_NONCE},s=W22ZaA==,i=4096".encode(), "does not go on from the client's"),
        (SERVER_FIRST.replace(b"s=W22", b"s=!22"), "not Base64"),
        (SERVER_FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s="), "its salt is empty"),
        (b"e=other-error", "the server refused: 'other-error'"),
        (b"\xff", "not UTF-8"),
        (b"", "it has no r=, s= and i="),
    ],
)
def test_a_client_refuses(challenge: bytes, why: str) -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", CLIENT_NONCE)
    with pytest.raises(SaslAuthenticationFailed, match=why):
        client.respond(challenge)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"p=tls-unique,,n=user,r=abc", "channel binding"),
        (b"x,,n=user,r=abc", "neither n nor y"),
        (b"n,,m=more,n=user,r=abc", "extension that is not known"),
        (b"n,a=root,n=user,r=abc", "only in its own name"),
        (b"n,,n=us=er,r=abc", "stands for neither"),
        (b"n,,n=us\0er,r=abc", "stands for neither"),
        (b"n,,n=user,r=" + b"x" * 1025, "1 to 1024"),
        (b"n,,n=user,r=", "1 to 1024"),
        (b"n,,n=user", "no n= and r="),
        (b"n,,r=abc,n=user", "n= is missing"),
        (b"n=user,r=abc", "GS2 header"),
        (b"\xff\xff", "not UTF-8"),
    ],
)
def test_a_server_refuses(first: bytes, why: str) -> None:
    with pytest.raises(SaslAuthenticationFailed, match=why):
        server().first(first)


def test_a_client_that_sends_its_nonce_twice_is_let_in() -> None:
    """Older librdkafka, and so kcat, does; Kafka takes it too."""
    exchange = server()
    exchange.first(CLIENT_FIRST)
    without_proof = f"c=biws,r={CLIENT_NONCE}{CLIENT_NONCE}{SERVER_NONCE}"
    signed = ",".join((CLIENT_FIRST.decode()[3:], SERVER_FIRST.decode(), without_proof)).encode()
    salted = scram.salted_password(SHA_256, "pencil", SALT, 4096)
    proof = base64.b64encode(scram.client_proof(SHA_256, salted, signed)).decode()
    assert exchange.last(f"{without_proof},p={proof}".encode()).startswith(b"v=")


@pytest.mark.parametrize("nonce", [CLIENT_NONCE, SERVER_NONCE, f"{CLIENT_NONCE}{SERVER_NONCE}x"])
def test_a_nonce_of_another_exchange_is_refused(nonce: str) -> None:
    exchange = server()
    exchange.first(CLIENT_FIRST)
    with pytest.raises(SaslAuthenticationFailed, match="not that of this exchange"):
        exchange.last(f"c=biws,r={nonce},p=AAAA".encode())


def test_extensions_are_signed_and_passed_over() -> None:
    assert server().first(CLIENT_FIRST + b",x=1") == SERVER_FIRST


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\0user", "two 0 bytes"),
        (b"\0user\0a\0b", "two 0 bytes"),
        (b"\0\0secret", "must not be empty"),
        (b"\0user\0", "must not be empty"),
        (b"root\0user\0secret", "only in its own name"),
        (b"\0user\0\xff", "not UTF-8"),
        (b"\0user\0" + b"x" * 1025, "at most 1024 bytes"),
    ],
)
def test_plain_refuses(content: bytes, why: str) -> None:
    with pytest.raises(SaslAuthenticationFailed, match=why):
        read_plain(content)


def test_plain() -> None:
    found = read_plain(b"user\0user\0" + "pässword".encode())
    assert (found.name, found.password) == ("user", "pässword")
    assert "pässword" not in repr(found)
    assert read_plain(b"\0user\0" + b"x" * 1024).password == "x" * 1024
    assert scram.password_matches(credential("pässword"), found.password)
    assert not scram.password_matches(credential("other"), found.password)


@given(st.binary(max_size=200))
@pytest.mark.parametrize(
    "read",
    [
        scram.read_client_first,
        scram.read_server_first,
        scram.read_client_final,
        scram.read_server_final,
        read_plain,
    ],
)
def test_any_bytes_give_a_message_or_a_typed_error(
    read: Callable[[bytes], object], content: bytes
) -> None:
    with contextlib.suppress(SaslAuthenticationFailed):
        read(content)
