"""The SASL mechanisms, their names and numbers, and the interface of their clients; and the
mechanisms of one message, PLAIN and OAUTHBEARER.

Both send their secret in clear, so they need an encrypted connection.

    PLAIN (RFC 4616)          AUTHZID 00 NAME 00 PASSWORD, in UTF-8
    OAUTHBEARER (RFC 7628)    n,,^Aauth=Bearer TOKEN^A^A, where ^A is the byte 01. The server
                              answers with nothing, or with a refusal as a JSON object. To the
                              refusal the client answers with ^A
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from ...values import value_class
from ..errors import SaslAuthenticationFailed

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"


@value_class
class ScramMechanism:
    """A variant of SCRAM. `number` is Kafka's, in its requests about credentials."""

    name: str
    number: int
    hash_name: str
    hash_bytes: int


SCRAM_MECHANISMS: Final[Mapping[str, ScramMechanism]] = MappingProxyType(
    {
        mechanism.name: mechanism
        for mechanism in (
            ScramMechanism(SCRAM_SHA_256, 1, "sha256", 32),
            ScramMechanism(SCRAM_SHA_512, 2, "sha512", 64),
        )
    }
)
"""The variants of SCRAM, by name."""


class SaslClient(Protocol):
    """The client's side of one authentication.

    `first` returns the client's first message; `respond` returns the answer to a server's message,
    or `None` if there is nothing left to send. Both raise `SaslAuthenticationFailed`, `respond`
    also for a server that does not know the password. The server is authenticated only once
    `complete` is true.
    """

    @property
    def mechanism(self) -> str: ...

    @property
    def complete(self) -> bool: ...

    def first(self) -> bytes: ...

    def respond(self, challenge: bytes) -> bytes | None: ...


MAX_PASSWORD_BYTES: Final = 1024
"""Maximum size of a password that is checked: a longer one only costs time to hash."""


class PlainCredentials:
    """A name and a password. They are not in the `repr`, so that they cannot get into a log."""

    __slots__ = ("name", "password")

    def __init__(self, name: str, password: str) -> None:
        self.name = name
        self.password = password


def read_plain(content: bytes) -> PlainCredentials:
    """Parse a client's message. Raises `SaslAuthenticationFailed` for a malformed message, and for
    one whose authorization id is another user."""
    try:
        parts = str(content, "utf-8").split("\0")
    except UnicodeDecodeError:
        raise SaslAuthenticationFailed("this is no message of PLAIN: it is not UTF-8") from None
    if len(parts) != 3:
        raise SaslAuthenticationFailed(
            "this is no message of PLAIN: it is not two 0 bytes between three texts"
        )
    authzid, name, password = parts
    if not name or not password:
        raise SaslAuthenticationFailed("name and password must not be empty")
    if len(password.encode()) > MAX_PASSWORD_BYTES:
        raise SaslAuthenticationFailed(f"a password has at most {MAX_PASSWORD_BYTES} bytes")
    if authzid not in ("", name):
        raise SaslAuthenticationFailed("a user may act only in its own name, not for another")
    return PlainCredentials(name, password)


class PlainClient:
    """The client's side of one authentication; see `SaslClient`."""

    mechanism = PLAIN

    def __init__(self, name: str, password: str) -> None:
        self._name = name
        self._password = password
        self.complete = False

    def first(self) -> bytes:
        if "\0" in self._name or "\0" in self._password:
            raise SaslAuthenticationFailed("PLAIN has no way to say a 0 byte")
        return f"\0{self._name}\0{self._password}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Handle the server's acceptance. A server of PLAIN proves nothing."""
        if challenge:
            raise SaslAuthenticationFailed("the server asks for more than PLAIN has")
        self.complete = True
        return None


_SEPARATOR: Final = "\x01"

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""The token syntax of RFC 6750; a JWT is one."""

_TOLD: Final = 200
"""Characters of a server's refusal that the client reports."""

REFUSAL: Final = '{"status":"invalid_token"}'
"""A server's answer to a token that it does not accept, in Kafka's words. The reason goes to its
log."""

GIVEN_UP: Final = _SEPARATOR.encode()
"""The client's answer to the refusal."""

_MAX_PAIRS: Final = 100
_FIRST: Final = re.compile(r"[ny],(?:a=((?:[^,=\0\x01]|=2C|=3D)+))?,\x01")
_AUTH: Final = re.compile(r"bearer +([A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)


class BearerMessage:
    """A client's first message. Its token is not in the `repr`, so that it cannot get into a
    log."""

    __slots__ = ("authzid", "token")

    def __init__(self, authzid: str, token: str) -> None:
        self.authzid = authzid
        self.token = token


def read_bearer(content: bytes) -> BearerMessage:
    """Parse a client's first message; pairs other than `auth` are ignored. Raises
    `SaslAuthenticationFailed` for anything else."""
    try:
        text = str(content, "utf-8")
    except UnicodeDecodeError:
        raise _malformed("it is not UTF-8") from None
    begin = _FIRST.match(text)
    if begin is None or not text.endswith(_SEPARATOR * 2):
        raise _malformed("it is not n,, and pairs between bytes 01")
    pairs = text[begin.end() : -2].split(_SEPARATOR)
    if len(pairs) > _MAX_PAIRS:
        raise _malformed(f"it has more than {_MAX_PAIRS} pairs")
    values = [pair.removeprefix("auth=") for pair in pairs if pair.startswith("auth=")]
    auth = _AUTH.fullmatch(values[0]) if len(values) == 1 else None
    if auth is None:
        raise _malformed("it has not one auth=Bearer TOKEN")
    authzid = (begin[1] or "").replace("=2C", ",").replace("=3D", "=")
    return BearerMessage(authzid, auth[1])


def _malformed(why: str) -> SaslAuthenticationFailed:
    return SaslAuthenticationFailed(f"this is no message of OAUTHBEARER: {why}")


class OAuthBearerClient:
    """The client's side of one authentication; see `SaslClient`."""

    mechanism = OAUTHBEARER

    def __init__(self, token: str) -> None:
        self._token = token
        self._refusal: str | None = None
        self.complete = False

    def first(self) -> bytes:
        if not _TOKEN.fullmatch(self._token):
            raise SaslAuthenticationFailed(
                "the token has characters that none can have (RFC 6750): is it in quotes, or is "
                "there more in its file?"
            )
        return f"n,,{_SEPARATOR}auth=Bearer {self._token}{_SEPARATOR}{_SEPARATOR}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Handle the server's acceptance or refusal. After a refusal the server waits for one more
        message before it ends the authentication with an error."""
        if self._refusal is not None:
            raise SaslAuthenticationFailed(f"the server refused the token: {self._refusal}")
        if not challenge:
            self.complete = True
            return None
        self._refusal = repr(challenge[:_TOLD].decode("utf-8", "replace"))
        return _SEPARATOR.encode()
