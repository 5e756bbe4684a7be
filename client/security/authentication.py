"""Authentication on a connection. No other requests are sent meanwhile."""

import asyncio
import random
import secrets
from collections.abc import Awaitable
from typing import Any, Final, Protocol

from ...protocol.api.schema import Api
from ...protocol.api.security.authenticate import (
    AUTHENTICATE,
    AuthenticateRequest,
    AuthenticateResponse,
)
from ...protocol.api.security.sasl_authenticate import (
    SASL_AUTHENTICATE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ...protocol.api.security.sasl_handshake import (
    SASL_HANDSHAKE,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ...protocol.errors import (
    NO_ERROR,
    CodedError,
    IllegalSaslState,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
    error_from_code,
)
from ...protocol.sasl.mechanisms import OAuthBearerClient, PlainClient, SaslClient
from ...protocol.sasl.scram import ScramClient
from ..errors import SecurityError
from .security import Mechanism, Secret, SecretText, Security, TokenSource

_MAX_STEPS: Final = 4
"""Largest number of messages of a SASL exchange. No mechanism here needs more; a broker that
continues is refused."""

_NONCE_BYTES: Final = 18

_EARLY: Final = (0.85, 0.95)
"""The client authenticates again after a random part of the session within these bounds, so that
clients that connected together do not come together."""


_KAFKA_LEAST_S: Final = 1.05
"""Least seconds between two logins. Kafka refuses a second login within a second (KIP-368), and
accepts a late one if no other request was sent before it."""


class SaslConnection(Protocol):
    """The connection on which a client authenticates."""

    @property
    def address(self) -> str: ...

    @property
    def native(self) -> bool:
        """Whether the connection speaks the native protocol, not Kafka's."""

    @property
    def answered_in_s(self) -> float:
        """Seconds until every request in flight is answered or has timed out."""

    def submit(self, api: Api, body: object, *, wait_ms: int = 0) -> Awaitable[Any]:
        """Send a request now; the result gets the response, or the error."""

    def authenticated(self, authenticate_again_in_s: float | None) -> None:
        """Record a successful login, and the time in seconds after which the client authenticates
        again; None: never."""


async def authenticate(connection: SaslConnection, security: Security) -> None:
    """Authenticate the client and, where the mechanism allows it, the broker.

    Requests in flight are answered first. Raises SaslAuthenticationFailed,
    UnsupportedSaslMechanism, SecurityError for a secret that cannot be read, ConnectionFailed.
    """
    client = await _client(security)
    exchange = _native if connection.native else _kafka
    try:
        lifetime_ms = await exchange(connection, client)
    except (IllegalSaslState, SaslAuthenticationFailed, UnsupportedVersion) as error:
        raise _refused(error, connection.address, security) from None
    if not client.complete:
        raise SaslAuthenticationFailed(
            f"{connection.address} ended the exchange of {client.mechanism} before it was done"
        )
    connection.authenticated(_again_in_s(lifetime_ms, connection.native))


def _again_in_s(lifetime_ms: int, native: bool) -> float | None:
    """Return the seconds until the next login; None for a session without end."""
    if lifetime_ms <= 0:
        return None
    in_s = lifetime_ms / 1000 * random.uniform(*_EARLY)
    return in_s if native else max(in_s, _KAFKA_LEAST_S)


async def _client(security: Security) -> SaslClient:
    """Return the client side of the mechanism, with the current values of the secrets."""
    mechanism, user = security.mechanism, security.user or ""
    assert mechanism is not None
    if mechanism is Mechanism.OAUTHBEARER:
        assert security.token is not None
        return OAuthBearerClient(await _token(security.token))
    assert security.password is not None
    password = await _read(security.password)
    if mechanism is Mechanism.PLAIN:
        return PlainClient(user, password)
    return ScramClient(mechanism, user, password, secrets.token_urlsafe(_NONCE_BYTES))


async def _token(source: str | Secret | TokenSource) -> str:
    if isinstance(source, str | Secret):
        return await _read(source)
    try:
        found = source()
        token = await found if isinstance(found, Awaitable) else found
    except Exception as error:
        raise SecurityError(f"the function that gives tokens raised {error!r}") from error
    if not isinstance(token, str) or not token:
        raise SecurityError(f"the function that gives tokens gave a {type(token).__name__}")
    return token


async def _read(secret: str | Secret) -> str:
    if isinstance(secret, str):
        return secret
    if isinstance(secret, SecretText):
        return secret.text
    return await asyncio.to_thread(secret.read)


async def _respond(client: SaslClient, challenge: bytes) -> bytes | None:
    # In a thread: the broker chooses the number of iterations, and the event loop must not block.
    return await asyncio.to_thread(client.respond, challenge)


async def _kafka(connection: SaslConnection, client: SaslClient) -> int:
    """Authenticate with Kafka's requests. Returns the session lifetime in milliseconds; 0 without
    end."""
    wait_ms = int(connection.answered_in_s * 1000)
    chosen: SaslHandshakeResponse = await connection.submit(
        SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=client.mechanism), wait_ms=wait_ms
    )
    if chosen.error_code == UnsupportedSaslMechanism.code:
        raise _not_offered(connection.address, client.mechanism, chosen.mechanisms)
    _check(chosen.error_code, None)
    message: bytes | None = client.first()
    for _ in range(_MAX_STEPS):
        assert message is not None
        answer: SaslAuthenticateResponse = await connection.submit(
            SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=message)
        )
        _check(answer.error_code, answer.error_message)
        message = await _respond(client, answer.auth_bytes)
        if message is None:
            return answer.session_lifetime_ms
    raise SaslAuthenticationFailed("it goes on asking after all was said")


async def _native(connection: SaslConnection, client: SaslClient) -> int:
    """Authenticate with the native request. Returns the session lifetime in milliseconds; 0 without
    end."""
    wait_ms = int(connection.answered_in_s * 1000)
    message: bytes | None = client.first()
    for _ in range(_MAX_STEPS):
        if message is None:
            break
        request = AuthenticateRequest(mechanism=client.mechanism, auth_bytes=message)
        try:
            answer: AuthenticateResponse = await connection.submit(
                AUTHENTICATE, request, wait_ms=wait_ms
            )
        except UnsupportedSaslMechanism:
            asked: AuthenticateResponse = await connection.submit(
                AUTHENTICATE, AuthenticateRequest()
            )
            raise _not_offered(connection.address, client.mechanism, asked.mechanisms) from None
        message = await _respond(client, answer.auth_bytes)
        if answer.done:
            return answer.session_lifetime_ms
    raise SaslAuthenticationFailed("it goes on asking after all was said")


def _check(code: int, text: str | None) -> None:
    if code != NO_ERROR:
        raise error_from_code(code, text)


def _not_offered(address: str, mechanism: str, offered: list[str]) -> UnsupportedSaslMechanism:
    there = f"it offers {', '.join(offered)}" if offered else "it offers none"
    return UnsupportedSaslMechanism(
        f"{address} does not let clients in by {mechanism}: {there}. Set mechanism "
        "(`sasl.mechanism`) to one of those"
    )


def _refused(error: CodedError, address: str, security: Security) -> CodedError:
    """Return the error with the address and the user, and a hint at what may be wrong."""
    who = f"the user {security.user!r}" if security.user else "the token"
    if isinstance(error, SaslAuthenticationFailed):
        return SaslAuthenticationFailed(
            f"{address} did not let {who} in by {security.mechanism}: {error.message.rstrip('.')}"
        )
    if isinstance(error, IllegalSaslState):
        return IllegalSaslState(
            f"{address} lets everybody in at this port and knows no users there: leave the user "
            "out, or connect to a port that asks for one"
        )
    return UnsupportedVersion(f"{error.message}, so {who} cannot log in there")
