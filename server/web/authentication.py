"""Users of the HTTP port: the same users as elsewhere, where a login is required.

A browser logs in at `/login` and gets a cookie that no script sees and no other site sends: a
random number, and here whose it is. Scripts send `Authorization: Basic`, or `Bearer` and a token.
`/static/` are files of the program, the same in every copy of it.
"""

import asyncio
import binascii
import hashlib
import json
import secrets
from base64 import b64decode
from collections.abc import Callable, Collection
from types import MappingProxyType
from typing import Any, Final, Protocol, cast

from aiohttp import hdrs, web
from multidict import CIMultiDict

from ...protocol.errors import ResourceNotFound, SaslAuthenticationFailed
from ...values import value_class
from ..security.service import SecurityService
from ..security.session import ANONYMOUS
from ..security.users import Users

SESSION_SECONDS: Final = 12 * 60 * 60.0
MAX_SESSIONS: Final = 10_000
"""Largest number of sessions. Above it the oldest ones end."""
_TOKEN_BYTES: Final = 32

COOKIE: Final = "horolog_session"
LOGIN_PATH: Final = "/login"
LOGOUT_PATH: Final = "/logout"
MAX_BODY_BYTES: Final = 8 * 1024
"""Largest body of a login: a name and a password in JSON."""

HEADERS: Final = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
)
"""Browser headers of an answer that shows nothing of the broker."""

_OPEN: Final = "/static/"
_JSON: Final = "application/json"
_WRONG: Final = "the user does not exist, or the password is wrong"
_NEEDED: Final = "log in: at /login, or with Authorization: Basic or Bearer"


@value_class
class _Session:
    principal: str
    name: str
    credentials: Any
    """The user's credentials at the time of login. The session ends when they change or are
    removed."""
    ends_at: float


class WebSessions:
    """Sessions by token. Only hashes of the tokens are kept."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._sessions: dict[bytes, _Session] = {}

    def begin(self, principal: str, name: str, users: "Users") -> str:
        """Start a session, and return its token."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        ends_at = self._time() + SESSION_SECONDS
        self._sessions[_key(token)] = _Session(principal, name, _credentials(users, name), ends_at)
        if len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return token

    def principal(self, token: str, users: "Users") -> str | None:
        """Return the principal of a session; None if the session does not exist or has ended."""
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


def _credentials(users: "Users", name: str) -> Any:
    try:
        return users.credentials(name)
    except ResourceNotFound:
        return None


class HttpPeer(Protocol):
    """Connection of the HTTP port with the client's identity."""

    address: str
    needs_login: bool
    certificate_principal: str | None
    principal: str
    has_session: bool

    def cancel_when_lost(self, task: "asyncio.Task[object] | None") -> None:
        """Cancel the task of the current request if the connection ends; None for no task."""


class HttpAuthentication:
    """Finds the principal of each HTTP request, by certificate, session or login."""

    def __init__(self, security: SecurityService, open_paths: Collection[str]) -> None:
        self._security = security
        self._open_paths = frozenset(open_paths)
        self._sessions = WebSessions(asyncio.get_running_loop().time)

    async def principal(self, request: web.BaseRequest, peer: HttpPeer) -> str | None:
        """Return the principal of a request; None if a login is missing. Also records whether a
        session gave the principal."""
        peer.has_session = False
        if peer.certificate_principal is not None:
            return peer.certificate_principal
        if not peer.needs_login:
            return ANONYMOUS
        found = self._sessions.principal(request.cookies.get(COOKIE, ""), self._security.users)
        if found is not None:
            peer.has_session = True
            return found
        header = request.headers.get(hdrs.AUTHORIZATION, "")
        bearer, basic = _bearer(header), _basic(header)
        try:
            if bearer is not None:
                return await self._security.logins.token(peer.address, bearer)
            if basic is not None:
                return await self._security.logins.password(peer.address, *basic)
        except SaslAuthenticationFailed:
            return None
        path = request.path
        if path in self._open_paths or path == LOGIN_PATH or path.startswith(_OPEN):
            return ANONYMOUS
        return None

    def refusal(self, request: web.BaseRequest) -> web.Response:
        """Return the answer to a client that must log in first."""
        from_page = "Sec-Fetch-Site" in request.headers
        if request.headers.get("Sec-Fetch-Mode") == "navigate" and request.method == "GET":
            return web.Response(status=303, headers={"Location": LOGIN_PATH, **HEADERS})
        headers = CIMultiDict(HEADERS)
        if not from_page:
            # A browser would prompt for the password itself, and send it again with every request.
            headers.add("WWW-Authenticate", 'Basic realm="horolog", charset="UTF-8"')
            if self._security.logins.takes_tokens:
                headers.add("WWW-Authenticate", 'Bearer realm="horolog"')
        body = json.dumps({"error": _NEEDED}).encode()
        return web.Response(status=401, body=body, content_type=_JSON, headers=headers)

    async def log_in(self, request: web.Request) -> web.Response:
        """Log in with a name and a password in JSON, which no form of another site can send."""
        refused = _foreign(request)
        if refused is not None:
            return refused
        try:
            sent = json.loads(await request.read())
            name, password = sent["user"], sent["password"]
            if not (isinstance(name, str) and isinstance(password, str)):
                raise TypeError
            _ = name.encode(), password.encode()  # refuses half of a surrogate pair
        except (ValueError, KeyError, TypeError, RecursionError):
            return _said(400, 'write {"user": NAME, "password": PASSWORD}')
        peer = cast(HttpPeer, request.protocol)
        try:
            principal = await self._security.logins.password(peer.address, name, password)
        except SaslAuthenticationFailed:
            return _said(401, _WRONG)
        answer = _said(200, "")
        transport = request.transport
        encrypted = transport is not None and transport.get_extra_info("tls") is not None
        token = self._sessions.begin(principal, name, self._security.users)
        answer.set_cookie(
            COOKIE,
            token,
            max_age=int(SESSION_SECONDS),
            path="/",
            secure=encrypted,
            httponly=True,
            samesite="Strict",
        )
        return answer

    async def log_out(self, request: web.Request) -> web.Response:
        refused = _foreign(request)
        if refused is not None:
            return refused
        self._sessions.end(request.cookies.get(COOKIE, ""))
        answer = _said(200, "")
        answer.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
        return answer


def _bearer(header: str) -> str | None:
    """Return the token of `Authorization: Bearer`; None for another scheme."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _basic(header: str) -> tuple[str, str] | None:
    """Return name and password of `Authorization: Basic`; None for another scheme, empty texts if
    malformed."""
    scheme, _, content = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = b64decode(content.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return (name, password) if colon else ("", "")


def _foreign(request: web.Request) -> web.Response | None:
    """Return the refusal of a request that another site may have sent; None if it is allowed."""
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return _said(403, "this is for the page itself, not for other sites")
    if request.content_type != _JSON:
        return _said(415, f"the body must be {_JSON}")
    return None


def _said(status: int, error: str) -> web.Response:
    body = json.dumps({"error": error} if error else {}).encode()
    return web.Response(status=status, body=body, content_type=_JSON, headers=HEADERS)
