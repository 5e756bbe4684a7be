"""SCRAM (RFC 5802, RFC 7677): its keys and its messages.

    client first    n,,n=NAME,r=NONCE
    server first    r=NONCE+SERVER NONCE,s=SALT,i=ITERATIONS
    client final    c=biws,r=NONCE+SERVER NONCE,p=PROOF
    server final    v=SIGNATURE, or e=ERROR

As in Kafka, names and passwords are used as their UTF-8 bytes, without SASLprep: two Unicode
spellings of a word are different.
"""

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final

from ...values import value_class
from ..errors import SaslAuthenticationFailed
from ..limits import MAX_SCRAM_ITERATIONS, MAX_SCRAM_NONCE_BYTES, MIN_SCRAM_ITERATIONS
from .mechanisms import SCRAM_MECHANISMS, ScramMechanism

GS2_HEADER: Final = "n,,"
"""GS2 header without channel binding and without an authorization id."""


class ScramClient:
    """The client's side of one authentication; see `SaslClient`."""

    def __init__(self, mechanism: str, name: str, password: str, nonce: str) -> None:
        """`mechanism` is a name in `SCRAM_MECHANISMS`. `nonce` is random printable ASCII without a
        comma, such as 18 bytes in Base64, and new for every authentication."""
        self._mechanism = SCRAM_MECHANISMS[mechanism]
        self._password = password
        self._nonce = nonce
        self._bare = write_client_first(name, nonce)
        self._expected: bytes | None = None
        self.complete = False

    @property
    def mechanism(self) -> str:
        return self._mechanism.name

    def first(self) -> bytes:
        return f"{GS2_HEADER}{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Called for the server's first message, which takes the time of the iterations, and for
        its last."""
        if self._expected is None:
            return self._final(challenge)
        signature = read_server_final(challenge)
        if self.complete or not hmac.compare_digest(signature, self._expected):
            raise SaslAuthenticationFailed(
                "the server did not prove that it knows the password: it is not the one it says"
            )
        self.complete = True
        return None

    def _final(self, challenge: bytes) -> bytes:
        server = read_server_first(challenge)
        if not server.nonce.startswith(self._nonce) or server.nonce == self._nonce:
            raise SaslAuthenticationFailed(
                "the server's nonce does not go on from the client's: its answer is to somebody "
                "else"
            )
        mechanism = self._mechanism
        salted = salted_password(mechanism, self._password, server.salt, server.iterations)
        without_proof = write_client_final_without_proof(server.nonce)
        auth_message = b",".join((self._bare.encode(), challenge, without_proof.encode()))
        proof = client_proof(mechanism, salted, auth_message)
        server_key = server_key_of(mechanism, salted)
        self._expected = server_signature(mechanism, server_key, auth_message)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()


@value_class
class ScramCredential:
    """What a server stores of a password: enough to check the password, not to log in with it."""

    mechanism: ScramMechanism
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


Find = Callable[[str], ScramCredential]
"""Returns the credential of a name. For an unknown name it is one that no password fits, always the
same for a name, so that no answer tells which users exist."""


class ScramServer:
    """The server's side of one authentication: `first`, then `last`. Both raise
    `SaslAuthenticationFailed`."""

    def __init__(self, mechanism: ScramMechanism, find: Find, nonce: str) -> None:
        """`nonce` is random printable ASCII without a comma, and new for every authentication."""
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._client: ClientFirst | None = None
        self._credential: ScramCredential | None = None
        self._server_first = ""

    @property
    def name(self) -> str:
        """Name of the user, as the client claims; empty before the client's first message."""
        return "" if self._client is None else self._client.name

    def first(self, content: bytes) -> bytes:
        """Return the answer to the client's first message."""
        client = read_client_first(content)
        if client.authzid not in ("", client.name):
            raise SaslAuthenticationFailed("a user may act only in its own name, not for another")
        self._client = client
        credential = self._credential = self._find(client.name)
        self._nonce = client.nonce + self._nonce
        self._server_first = write_server_first(self._nonce, credential.salt, credential.iterations)
        return self._server_first.encode()

    def last(self, content: bytes) -> bytes:
        """Return the answer to the client's last message, which proves that it knows the
        password."""
        client, credential = self._client, self._credential
        assert client is not None
        assert credential is not None
        final = read_client_final(content)
        if final.binding != channel_binding(client.header):
            raise SaslAuthenticationFailed("the client's c= is not what it began with")
        # As in Kafka, only the end is compared: older librdkafka sends its own nonce twice. The
        # whole nonce is signed as part of the server's first message, whatever the client repeats.
        end = final.nonce[-len(self._nonce) :]
        if not hmac.compare_digest(end.encode(), self._nonce.encode()):
            raise SaslAuthenticationFailed("the client's nonce is not that of this exchange")
        signed = f"{client.bare},{self._server_first},{final.without_proof}".encode()
        if not proof_matches(credential, final.proof, signed):
            raise SaslAuthenticationFailed("the user does not exist, or the password is wrong")
        signature = server_signature(self._mechanism, credential.server_key, signed)
        return f"v={b64encode(signature).decode()}".encode()


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Return the password hashed with `iterations` rounds; 16,384 take some 10 ms."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    return ScramCredential(
        mechanism,
        salt,
        iterations,
        stored_key=_hash(mechanism, client_key),
        server_key=_hmac(mechanism, salted, b"Server Key"),
    )


def password_matches(credential: ScramCredential, password: str) -> bool:
    """Whether `credential` belongs to `password`. The comparison takes constant time.

    Takes as long as `salted_password`.
    """
    mechanism = credential.mechanism
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    made = credential_of(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(made.stored_key, credential.stored_key)


def client_proof(mechanism: ScramMechanism, salted: bytes, auth_message: bytes) -> bytes:
    """Return the client's proof that it knows the salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    signature = _hmac(mechanism, _hash(mechanism, client_key), auth_message)
    return _xor(client_key, signature)


def proof_matches(credential: ScramCredential, proof: bytes, auth_message: bytes) -> bool:
    """Whether a client's proof was made with the password of a credential. The comparison takes
    constant time."""
    mechanism = credential.mechanism
    signature = _hmac(mechanism, credential.stored_key, auth_message)
    client_key = _xor(proof.ljust(len(signature), b"\0")[: len(signature)], signature)
    made = _hash(mechanism, client_key)
    return hmac.compare_digest(made, credential.stored_key) and len(proof) == len(signature)


def server_signature(mechanism: ScramMechanism, server_key: bytes, auth_message: bytes) -> bytes:
    """Return the server's proof that it has the credential."""
    return _hmac(mechanism, server_key, auth_message)


def server_key_of(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the key with which a server signs."""
    return _hmac(mechanism, salted, b"Server Key")


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.hash_name)


def _hash(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, data).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


@value_class
class ClientFirst:
    """A client's first message. `bare` is the part that is signed."""

    header: str
    authzid: str
    name: str
    nonce: str
    bare: str


@value_class
class ServerFirst:
    nonce: str
    salt: bytes
    iterations: int


@value_class
class ClientFinal:
    """A client's last message. `without_proof` is the part that is signed."""

    binding: str
    nonce: str
    proof: bytes
    without_proof: str


def read_client_first(content: bytes) -> ClientFirst:
    """Parse a client's first message. Raises `SaslAuthenticationFailed` for anything else."""
    text = _text(content, "client-first")
    parts = text.split(",", 2)
    if len(parts) != 3:
        raise _malformed("client-first", "it does not begin with a GS2 header such as n,,")
    binding, authzid, bare = parts
    if binding.startswith("p="):
        raise _malformed("client-first", "it asks for channel binding, which is not offered")
    if binding not in ("n", "y"):
        raise _malformed("client-first", "its channel binding flag is neither n nor y")
    fields = bare.split(",")
    if fields[0].startswith("m="):
        raise _malformed("client-first", "it needs an extension that is not known (m=)")
    if len(fields) < 2:
        raise _malformed("client-first", "it has no n= and r=")
    name = _name(_field(fields[0], "n", "client-first"))
    nonce = _nonce(_field(fields[1], "r", "client-first"), "client-first")
    acts_for = _name(_field(authzid, "a", "client-first")) if authzid else ""
    return ClientFirst(f"{binding},{authzid},", acts_for, name, nonce, bare)


def write_client_first(name: str, nonce: str) -> str:
    """Return the bare part of the client's first message; `GS2_HEADER` goes before it."""
    return f"n={_escaped(name)},r={nonce}"


def read_server_first(content: bytes) -> ServerFirst:
    """Parse a server's first message. Raises `SaslAuthenticationFailed` for anything else, and for
    too few or too many iterations."""
    text = _text(content, "server-first")
    if text.startswith("e="):
        raise SaslAuthenticationFailed(f"the server refused: {text[2:102]!r}")
    fields = text.split(",")
    if len(fields) < 3:
        raise _malformed("server-first", "it has no r=, s= and i=")
    nonce = _nonce(_field(fields[0], "r", "server-first"), "server-first")
    salt = _bytes(_field(fields[1], "s", "server-first"), "server-first")
    iterations = _field(fields[2], "i", "server-first")
    if not (iterations.isascii() and iterations.isdecimal() and len(iterations) <= 10):
        raise _malformed("server-first", "its i= is no number")
    check_iterations(int(iterations), "the server asks for")
    if not salt:
        raise _malformed("server-first", "its salt is empty")
    return ServerFirst(nonce, salt, int(iterations))


def check_iterations(iterations: int, what: str) -> None:
    """Raise `SaslAuthenticationFailed` if the iterations are too few to protect a password, or so
    many that they would only occupy the processor."""
    if not MIN_SCRAM_ITERATIONS <= iterations <= MAX_SCRAM_ITERATIONS:
        raise SaslAuthenticationFailed(
            f"{what} {iterations} iterations of SCRAM; allowed are {MIN_SCRAM_ITERATIONS} to "
            f"{MAX_SCRAM_ITERATIONS}"
        )


def write_server_first(nonce: str, salt: bytes, iterations: int) -> str:
    return f"r={nonce},s={b64encode(salt).decode()},i={iterations}"


def read_client_final(content: bytes) -> ClientFinal:
    """Parse a client's last message. Raises `SaslAuthenticationFailed` for anything else."""
    text = _text(content, "client-final")
    without_proof, comma, last = text.rpartition(",")
    fields = without_proof.split(",")
    if not comma or len(fields) < 2:
        raise _malformed("client-final", "it has no c=, r= and p=")
    return ClientFinal(
        binding=_field(fields[0], "c", "client-final"),
        nonce=_field(fields[1], "r", "client-final"),
        proof=_bytes(_field(last, "p", "client-final"), "client-final"),
        without_proof=without_proof,
    )


def write_client_final_without_proof(nonce: str) -> str:
    return f"c={channel_binding(GS2_HEADER)},r={nonce}"


def channel_binding(header: str) -> str:
    """Return the channel binding value that a client repeats in its last message."""
    return b64encode(header.encode()).decode()


def read_server_final(content: bytes) -> bytes:
    """Return the server's signature. Raises `SaslAuthenticationFailed` if the server refused."""
    text = _text(content, "server-final")
    if text.startswith("e="):
        raise SaslAuthenticationFailed(f"the server refused: {text[2:102]!r}")
    return _bytes(_field(text.split(",")[0], "v", "server-final"), "server-final")


def _text(content: bytes, message: str) -> str:
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError:
        raise _malformed(message, "it is not UTF-8") from None


def _field(text: str, letter: str, message: str) -> str:
    if not text.startswith(f"{letter}="):
        raise _malformed(message, f"{letter}= is missing, or not where it belongs")
    return text[2:]


def _bytes(text: str, message: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _malformed(message, "a value is not Base64") from None


def _nonce(text: str, message: str) -> str:
    if not text or len(text) > MAX_SCRAM_NONCE_BYTES or not text.isascii():
        raise _malformed(message, f"its nonce must be 1 to {MAX_SCRAM_NONCE_BYTES} ASCII letters")
    if not text.isprintable():
        raise _malformed(message, "its nonce is not printable")
    return text


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _name(text: str) -> str:
    name = text.replace("=2C", ",").replace("=3D", "\0")
    if "=" in name or "\0" in text:
        raise _malformed("client-first", "a name has `=` that stands for neither `,` nor `=`")
    return name.replace("\0", "=")


def _malformed(message: str, why: str) -> SaslAuthenticationFailed:
    return SaslAuthenticationFailed(f"this is no {message} message of SCRAM: {why}")
