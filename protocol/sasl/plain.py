"""PLAIN (RFC 4616): name and password are sent in clear, so it needs an encrypted connection.

[AUTHZID] 00 NAME 00 PASSWORD     UTF-8
"""

from typing import Final

from ..errors import SaslAuthenticationFailed
from . import mechanisms

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

    mechanism = mechanisms.PLAIN

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
