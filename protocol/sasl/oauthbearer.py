"""OAUTHBEARER (RFC 7628), the client's side: a token as it is, so it is for encrypted connections.

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
"""So much of why a token is refused is told on."""


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
