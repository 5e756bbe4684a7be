"""OAUTHBEARER (RFC 7628): the token is sent in clear, so it needs an encrypted connection.

client first    n,,^Aauth=Bearer TOKEN^A^A     ^A is the byte 01
server          nothing; or a refusal as a JSON object, which the client answers with ^A
"""

import re
from typing import Final

from ..errors import SaslAuthenticationFailed
from . import mechanisms

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
        """Handle the server's acceptance or refusal. After a refusal the server waits for one more
        message before it ends the authentication with an error."""
        if self._refusal is not None:
            raise SaslAuthenticationFailed(f"the server refused the token: {self._refusal}")
        if not challenge:
            self.complete = True
            return None
        self._refusal = repr(challenge[:_TOLD].decode("utf-8", "replace"))
        return _SEPARATOR.encode()
