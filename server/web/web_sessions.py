"""The logins of browsers: a random number in a cookie, and here whose it is."""

import hashlib
import secrets
from collections.abc import Callable
from typing import Any, Final

from ...protocol.errors import ResourceNotFound
from ...values import value_class
from ..security.users import Users

SESSION_SECONDS: Final = 12 * 60 * 60.0
MAX_SESSIONS: Final = 10_000
"""Beyond, the oldest end."""
_TOKEN_BYTES: Final = 32


@value_class
class _Session:
    principal: str
    name: str
    credentials: Any
    """The user's passwords when it logged in: with others, or without any, the session is over."""
    ends_at: float


class WebSessions:
    """Sessions by their tokens, of which only the hashes are kept."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._sessions: dict[bytes, _Session] = {}

    def begin(self, principal: str, name: str, users: Users) -> str:
        """A new session; returns its token."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        ends_at = self._time() + SESSION_SECONDS
        self._sessions[_key(token)] = _Session(principal, name, _credentials(users, name), ends_at)
        if len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return token

    def principal(self, token: str, users: Users) -> str | None:
        """Whose session it is; `None` when there is no such one, or no longer."""
        found = self._sessions.get(_key(token)) if token else None
        if found is None:
            return None
        if found.ends_at < self._time() or _credentials(users, found.name) != found.credentials:
            self.end(token)
            return None
        return found.principal

    def end(self, token: str) -> None:
        self._sessions.pop(_key(token), None)


def _key(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _credentials(users: Users, name: str) -> Any:
    try:
        return users.credentials(name)
    except ResourceNotFound:
        return None
