"""Requests to etcd's JSON gateway (`/v3/`), at whichever endpoint answers.

Byte strings are in base64, 64-bit numbers are strings. The gateway is part of etcd from 3.4 to 3.6
and on unless it is started with `--enable-grpc-gateway=false`.
"""

import json
from asyncio import timeout
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from .access import Access
from .errors import EtcdError, EtcdMisconfigured, EtcdUnreachable, LeaseNotFound

ANSWER_MAX_BYTES: Final = 16 << 20
"""etcd takes requests of up to 1.5 MB by default; an answer has some values of them."""

ATTEMPT_S: Final = 1.0
"""For one endpoint, where there is another one to ask; else all the time that there is."""

TEXT_MAX: Final = 300
"""Characters of an answer's text that are shown."""

_NOT_FOUND, _UNAUTHENTICATED, _DENIED = 5, 16, 7
_TRY_ANOTHER: Final = frozenset({1, 4, 8, 13, 14})
"""Codes of gRPC that may be of this member alone, or of this moment: cancelled, deadline,
exhausted, internal, unavailable."""

_TOKEN_IS_OLD: Final = ("invalid auth token", "auth store is old", "user name is empty")
_LOGIN_REFUSED: Final = ("authentication failed", "permission denied", *_TOKEN_IS_OLD)


class EtcdClient:
    """One session: connections that are kept, and a token where etcd asks for a login."""

    def __init__(self, access: Access, timeout_s: float = 2.0) -> None:
        """`timeout_s` is for a request at all endpoints together. Raises `InvalidConfig`."""
        self._access = access
        self._timeout_s = timeout_s
        self._tls = access.tls()
        self._first = 0
        """The endpoint that answered last, or the one behind the last that was silent."""
        self._token = ""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request. Raises `EtcdError`."""
        try:
            async with timeout(self._timeout_s):
                return await self._call(path, body)
        except TimeoutError as error:
            raise EtcdUnreachable(
                f"etcd did not answer {path} within {self._timeout_s:g} s at "
                f"{', '.join(self._access.endpoints)}"
            ) from error

    async def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        user = self._access.user
        if user and not self._token:
            await self._log_in()
        try:
            return await self._anywhere(path, body)
        except _TokenIsOld:
            if not user:
                raise EtcdMisconfigured(
                    "etcd asks for a login: give cluster.etcd.credentials, a file with a user and "
                    "its password"
                ) from None
        await self._log_in()
        try:
            return await self._anywhere(path, body)
        except _TokenIsOld as error:
            raise EtcdMisconfigured(f"etcd takes no token of user {user!r}: {error}") from error

    async def _log_in(self) -> None:
        self._token = ""
        body = {"name": self._access.user, "password": self._access.password}
        try:
            answer = await self._anywhere("/v3/auth/authenticate", body)
        except _TokenIsOld as error:
            raise EtcdMisconfigured(f"etcd refuses user {self._access.user!r}: {error}") from error
        except EtcdMisconfigured:
            raise
        except EtcdUnreachable:
            raise
        except EtcdError as error:
            raise EtcdMisconfigured(
                f"etcd does not let in user {self._access.user!r} "
                f"(cluster.etcd.credentials): {error}"
            ) from error
        token = answer.get("token")
        if not isinstance(token, str) or not token:
            raise EtcdMisconfigured("etcd gave no token for a login")
        self._token = token

    async def _anywhere(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """At one endpoint after the other, the most promising first, until one answers."""
        endpoints, first = self._access.endpoints, self._first
        failures: list[EtcdError] = []
        for number in range(len(endpoints)):
            place = (first + number) % len(endpoints)
            try:
                last = number == len(endpoints) - 1
                async with timeout(None if last else ATTEMPT_S):
                    answer = await self._at(endpoints[place], path, body)
            except TimeoutError:
                # The next request begins behind it: there may not be time for two that are silent.
                self._first = (place + 1) % len(endpoints)
                failures.append(
                    EtcdUnreachable(f"{endpoints[place]} did not answer within {ATTEMPT_S:g} s")
                )
            except (EtcdUnreachable, EtcdMisconfigured) as error:
                failures.append(error)
            else:
                self._first = place
                return answer
        # One that answers wrongly is worth more words than one that does not answer.
        text = "; ".join(each.message for each in failures)
        if any(isinstance(each, EtcdMisconfigured) for each in failures):
            raise EtcdMisconfigured(text)
        raise EtcdUnreachable(text)

    async def _at(self, endpoint: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=True if self._tls is None else self._tls),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        headers = {"Authorization": self._token} if self._token else {}
        try:
            async with self._session.post(
                endpoint + path, json=body, headers=headers, allow_redirects=False
            ) as response:
                content = await _bounded(response, endpoint)
                return _answer(endpoint, path, response.status, content)
        except aiohttp.ClientSSLError as error:
            raise EtcdMisconfigured(f"{endpoint}: TLS failed: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise EtcdUnreachable(f"{endpoint} cannot be reached: {error}") from error


class _TokenIsOld(EtcdError):
    """etcd wants a login."""


async def _bounded(response: aiohttp.ClientResponse, endpoint: str) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_chunked(1 << 16):
        size += len(part)
        if size > ANSWER_MAX_BYTES:
            raise EtcdMisconfigured(
                f"{endpoint} answers with more than {ANSWER_MAX_BYTES} bytes; is it an etcd?"
            )
        parts.append(part)
    return b"".join(parts)


def _answer(endpoint: str, path: str, status: int, content: bytes) -> dict[str, Any]:
    """What an answer says. Raises `EtcdError`."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        if status in (502, 503, 504):
            raise EtcdUnreachable(f"{endpoint} answers {status}: {_shown(content)}")
        raise EtcdMisconfigured(
            f"{endpoint} answers {status} to {path} ({_shown(content)}), so it is no etcd of 3.4 "
            "or later, or its JSON gateway is off (etcd --enable-grpc-gateway=true)"
        )
    error = document.get("error")
    if status == 200 and error is None:
        return document
    code = document.get("code")
    if isinstance(error, dict):  # In a stream.
        code, error = error.get("grpc_code", error.get("code")), error.get("message")
    text = str(error or document.get("message") or _shown(content))[:TEXT_MAX]
    raise _error(endpoint, code, text)


def _error(endpoint: str, code: object, text: str) -> EtcdError:
    if code == _UNAUTHENTICATED or any(part in text for part in _TOKEN_IS_OLD):
        return _TokenIsOld(text)
    if code == _DENIED or any(part in text for part in _LOGIN_REFUSED):
        return EtcdMisconfigured(f"{endpoint}: {text} (cluster.etcd.credentials)")
    if code == _NOT_FOUND and "lease" in text:
        return LeaseNotFound(text)
    if code in _TRY_ANOTHER:
        return EtcdUnreachable(f"{endpoint}: {text}")
    return EtcdError(f"{endpoint}: {text}")


def _shown(content: bytes) -> str:
    return content[:TEXT_MAX].decode("utf-8", "replace").strip()
