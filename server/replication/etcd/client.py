"""Requests to etcd's JSON gateway (`/v3/`), at any endpoint that answers, with the broker's login
there.

In the JSON, byte strings are in base64 and 64-bit numbers are strings. The gateway is part of etcd
3.4 to 3.6, and enabled unless etcd is started with `--enable-grpc-gateway=false`.
"""

import base64
import binascii
import json
import ssl
from asyncio import timeout
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from ....config.broker import BrokerSettings
from ....config.cluster_table import etcd_endpoints
from ....protocol.errors import HorologError, InvalidConfig
from ....values import value_class


@value_class
class Access:
    """Endpoints, paths of certificate files, user and password; empty if not given."""

    endpoints: tuple[str, ...]
    ca: str = ""
    certificate: str = ""
    key: str = ""
    user: str = ""
    password: str = ""

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context for https:// endpoints, `None` without one. Raises
        `InvalidConfig`."""
        if not any(endpoint.startswith("https://") for endpoint in self.endpoints):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except (OSError, ssl.SSLError) as error:
            raise InvalidConfig(f"{self.ca} (cluster.etcd.ca) cannot be used: {error}") from error
        if self.certificate:
            try:
                context.load_cert_chain(self.certificate, self.key or None)
            except (OSError, ssl.SSLError) as error:
                raise InvalidConfig(
                    f"{self.certificate} (cluster.etcd.cert) with {self.key or 'its own key'} "
                    f"(cluster.etcd.key) cannot be used: {error}"
                ) from error
        return context


def access_of(settings: BrokerSettings) -> Access:
    """Return the access that the settings `cluster.etcd...` describe. Raises `InvalidConfig`."""
    endpoints = etcd_endpoints(settings.cluster_etcd)
    plain = [endpoint for endpoint in endpoints if endpoint.startswith("http://")]
    for name, value in (
        ("cluster.etcd.ca", settings.cluster_etcd_ca),
        ("cluster.etcd.cert", settings.cluster_etcd_cert),
        ("cluster.etcd.key", settings.cluster_etcd_key),
    ):
        if value and plain:
            raise InvalidConfig(
                f"{name} is {value}, which is for https://, and cluster.etcd (--etcd) has "
                f"{plain[0]}"
            )
    if settings.cluster_etcd_key and not settings.cluster_etcd_cert:
        raise InvalidConfig(
            f"cluster.etcd.key is {settings.cluster_etcd_key}, and cluster.etcd.cert, the "
            "certificate that it belongs to, is empty: give both"
        )
    user, password = read_credentials(settings.cluster_etcd_credentials)
    return Access(
        endpoints,
        settings.cluster_etcd_ca,
        settings.cluster_etcd_cert,
        settings.cluster_etcd_key,
        user,
        password,
    )


def read_credentials(path: str) -> tuple[str, str]:
    """Read user and password from the first two lines of a file; both are empty without a file.
    Raises `InvalidConfig`."""
    if not path:
        return "", ""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path} (cluster.etcd.credentials) cannot be read: {error}") from error
    if len(lines) < 2 or not all(lines[:2]):
        raise InvalidConfig(
            f"{path} (cluster.etcd.credentials) has no user and password on its first two lines"
        )
    return lines[0], lines[1]


class EtcdError(HorologError):
    """etcd refused a request."""


class EtcdUnreachable(EtcdError):
    """No endpoint answered in time, or etcd has no leader; a later request may succeed."""

    retriable = True


class EtcdMisconfigured(EtcdError):
    """The configuration is wrong: the endpoint is no etcd, has no gateway, or refuses the login."""


class LeaseNotFound(EtcdError):
    """etcd does not know the lease (any more)."""


class BadValue(EtcdError):
    """A value in etcd is malformed, or of a later version."""


ANSWER_MAX_BYTES: Final = 16 << 20
"""Limit of an answer. etcd accepts requests of up to 1.5 MB by default; an answer contains a few
such values."""

ATTEMPT_S: Final = 1.0
"""How long one endpoint may take to answer before the next is tried; the last endpoint may take all
the time that is left."""

TEXT_MAX: Final = 300
"""Characters of an answer's text that an error message quotes."""

_NOT_FOUND, _UNAUTHENTICATED, _DENIED = 5, 16, 7
_TRY_ANOTHER: Final = frozenset({1, 4, 8, 13, 14})
"""gRPC codes of errors that another etcd member, or a later request, may not have: cancelled,
deadline exceeded, resource exhausted, internal, unavailable."""

_STARTING: Final = "not capable"
"""In the text of an error of an etcd that does not know yet which releases its members have."""

_TOKEN_IS_OLD: Final = ("invalid auth token", "auth store is old", "user name is empty")
_LOGIN_REFUSED: Final = ("authentication failed", "permission denied", *_TOKEN_IS_OLD)


class EtcdClient:
    """A session with etcd: its connections, and a token if etcd requires a login."""

    def __init__(self, access: Access, timeout_s: float = 2.0) -> None:
        """`timeout_s` is the limit of a request, for all endpoints together. Raises
        `InvalidConfig`."""
        self._access = access
        self._timeout_s = timeout_s
        self._tls = access.tls()
        self._first = 0
        """Index of the endpoint to try first: the last that answered, or the next after one that
        did not answer in time."""
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
        """Send a request, and return the answer. Raises `EtcdError`."""
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
        """Send a request to one endpoint after another, beginning with `_first`, until one
        answers."""
        endpoints, first = self._access.endpoints, self._first
        failures: list[EtcdError] = []
        for number in range(len(endpoints)):
            place = (first + number) % len(endpoints)
            try:
                last = number == len(endpoints) - 1
                async with timeout(None if last else ATTEMPT_S):
                    answer = await self._at(endpoints[place], path, body)
            except TimeoutError:
                # The next request begins at the next endpoint: its time may not be enough for two
                # endpoints that do not answer.
                self._first = (place + 1) % len(endpoints)
                failures.append(
                    EtcdUnreachable(f"{endpoints[place]} did not answer within {ATTEMPT_S:g} s")
                )
            except (EtcdUnreachable, EtcdMisconfigured) as error:
                failures.append(error)
            else:
                self._first = place
                return answer
        # A wrong configuration is reported even if other endpoints do not answer.
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
    """etcd requires a login, or does not accept the token any more."""


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
    """Decode an answer. Raises `EtcdError`, also for an error that the answer reports."""
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
    if code in _TRY_ANOTHER or _STARTING in text:
        return EtcdUnreachable(f"{endpoint}: {text}")
    return EtcdError(f"{endpoint}: {text}")


def _shown(content: bytes) -> str:
    return content[:TEXT_MAX].decode("utf-8", "replace").strip()


@value_class
class KeyValue:
    """A key in etcd with its value."""

    key: str
    value: bytes
    revision: int
    """The revision of the key's last change."""
    lease_id: int
    """The lease that the key is on; 0 for none."""


@value_class
class FoundKey:
    """The keys that were read at one revision of etcd."""

    revision: int
    values: tuple[KeyValue, ...]
    succeeded: bool = True
    """For a transaction: whether its conditions held."""


@value_class
class Put:
    """A key that a transaction writes."""

    key: str
    value: bytes
    lease_id: int = 0


class Gateway:
    """The operations of etcd that a cluster uses. All calls raise `EtcdError`."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client

    async def range(self, prefix: str) -> FoundKey:
        """Return all keys that begin with `prefix`, by a linearizable read."""
        answer = await self._client.call("/v3/kv/range", _prefix(prefix))
        return FoundKey(_revision(answer), _key_values(answer))

    async def transact(
        self,
        unchanged: Sequence[tuple[str, int]],
        puts: Sequence[Put],
        *,
        read: str,
        deletes: Sequence[str] = (),
    ) -> FoundKey:
        """Write and delete keys if each key in `unchanged` still has its revision (0: the key does
        not exist). Returns the keys with the prefix `read`, read in the same transaction after the
        writes, whether the conditions held or not."""
        reading = {"request_range": _prefix(read)}
        body = {
            "compare": [
                {
                    "key": _encoded(key),
                    "target": "MOD",
                    "result": "EQUAL",
                    "mod_revision": str(revision),
                }
                for key, revision in unchanged
            ],
            "success": [
                *({"request_put": _put(put)} for put in puts),
                *({"request_delete_range": {"key": _encoded(key)}} for key in deletes),
                reading,
            ],
            "failure": [reading],
        }
        answer = await self._client.call("/v3/kv/txn", body)
        responses = answer.get("responses")
        if not isinstance(responses, list) or not responses:
            raise EtcdMisconfigured("etcd answers a transaction without what was read in it")
        last = responses[-1]
        found = _either(last, "response_range", "responseRange") if isinstance(last, dict) else None
        if not isinstance(found, dict):
            raise EtcdMisconfigured("etcd answers a transaction without what was read in it")
        return FoundKey(_revision(answer), _key_values(found), answer.get("succeeded") is True)

    async def grant(self, ttl_s: int) -> tuple[int, int]:
        """Create a lease. Returns its id, and for how many seconds etcd granted it."""
        answer = await self._client.call("/v3/lease/grant", {"TTL": str(ttl_s)})
        return _number(answer, "ID"), _number(answer, "TTL")

    async def keep_alive(self, lease_id: int) -> int | None:
        """Renew a lease. Returns for how many seconds it holds from now on, `None` if etcd does not
        know the lease."""
        answer = await self._client.call("/v3/lease/keepalive", {"ID": str(lease_id)})
        result = answer.get("result")
        if not isinstance(result, dict):
            raise EtcdMisconfigured("etcd answers the renewal of a lease without a result")
        return _number(result, "TTL") if int(result.get("TTL", 0)) > 0 else None

    async def revoke(self, lease_id: int) -> None:
        """End a lease. etcd deletes its keys."""
        await self._client.call("/v3/lease/revoke", {"ID": str(lease_id)})

    async def delete(self, key: str) -> None:
        """Remove a key."""
        await self._client.call("/v3/kv/deleterange", {"key": _encoded(key)})


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


def _prefix(prefix: str) -> dict[str, Any]:
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return {"key": _encoded(prefix), "range_end": _encoded(end)}


def _put(put: Put) -> dict[str, Any]:
    value = base64.b64encode(put.value).decode("ascii")
    return {"key": _encoded(put.key), "value": value, "lease": str(put.lease_id)}


def _either(document: dict[str, Any], *names: str) -> Any:
    """Return a field, whose spelling depends on the release of etcd."""
    for name in names:
        if name in document:
            return document[name]
    return None


def _number(document: dict[str, Any], *names: str) -> int:
    value = _either(document, *names)
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise EtcdMisconfigured(f"etcd answers {names[0]} {str(value)[:80]!r}") from error


def _revision(answer: dict[str, Any]) -> int:
    header = answer.get("header")
    if not isinstance(header, dict):
        raise EtcdMisconfigured("etcd answers without a header")
    return _number(header, "revision")


def _key_values(answer: dict[str, Any]) -> tuple[KeyValue, ...]:
    found = answer.get("kvs", [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise EtcdMisconfigured("etcd answers with keys that are no list")
    return tuple(_key_value(each) for each in found)


def _key_value(document: dict[str, Any]) -> KeyValue:
    try:
        key = base64.b64decode(document["key"]).decode("utf-8", "replace")
        value = base64.b64decode(document.get("value", ""))
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise EtcdMisconfigured(
            f"etcd answers with a key that is not in base64: {error}"
        ) from error
    lease_id = int(document.get("lease", 0) or 0)
    return KeyValue(key, value, _number(document, "mod_revision", "modRevision"), lease_id)
