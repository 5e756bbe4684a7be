"""OAUTHBEARER (RFC 7628): a token as it is, so it is for encrypted connections.

client first    n,,^Aauth=Bearer TOKEN^A^A     ^A is the byte 01
server          nothing; or, when it refuses, an object of JSON, which the client answers by ^A
"""

import re
from typing import Final

from ..errors import SaslAuthenticationFailed
from . import mechanisms

_SEPARATOR: Final = "\x01"

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""As RFC 6750 writes it; a JWT is one."""

_TOLD: Final = 200
"""So much of why a token is refused goes to the client."""

REFUSAL: Final = '{"status":"invalid_token"}'
"""What a server says to a token that it does not take, in Kafka's words. Why is for its log."""

GIVEN_UP: Final = _SEPARATOR.encode()
"""What a client says to that."""

_MAX_PAIRS: Final = 100
_FIRST: Final = re.compile(r"[ny],(?:a=((?:[^,=\0\x01]|=2C|=3D)+))?,\x01")
_AUTH: Final = re.compile(r"bearer +([A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)


class BearerMessage:
    """A token, which is not shown: it could come to stand in a log."""

    __slots__ = ("authzid", "token")

    def __init__(self, authzid: str, token: str) -> None:
        self.authzid = authzid
        self.token = token


def read_bearer(content: bytes) -> BearerMessage:
    """What a client says first; pairs that are not `auth` are left alone. Raises
    `SaslAuthenticationFailed` for what is no message of OAUTHBEARER."""
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
    """One exchange; see `SaslClient`."""

    mechanism = mechanisms.OAUTHBEARER

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
        """The server has accepted, or says why not. Then it waits for one more message, before it
        ends the exchange with an error."""
        if self._refusal is not None:
            raise SaslAuthenticationFailed(f"the server refused the token: {self._refusal}")
        if not challenge:
            self.complete = True
            return None
        self._refusal = repr(challenge[:_TOLD].decode("utf-8", "replace"))
        return _SEPARATOR.encode()
