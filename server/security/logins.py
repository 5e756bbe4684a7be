"""Logins with SASL, in both protocols and at the HTTP port.

A failed login is answered after a fixed time, whatever was wrong: an unknown user, a user without a
password for the mechanism, or a wrong password. The work is the same too, because an unknown user
has a credential that no password matches (`users`).
"""

import asyncio
import os
from base64 import b64encode
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from ...protocol.sasl.mechanisms import (
    GIVEN_UP,
    MAX_PASSWORD_BYTES,
    OAUTHBEARER,
    PLAIN,
    REFUSAL,
    SCRAM_MECHANISMS,
    read_bearer,
    read_plain,
)
from ...protocol.sasl.scram import ScramServer, password_matches
from ...storage.events import Observer
from ...storage.metadata.access_records import MAX_USER_NAME_BYTES
from ..metrics.figures import Figures
from .session import LoginSession, LoginState, ScramExchange, Step, principal_of
from .users import Users

if TYPE_CHECKING:
    from .tokens import Tokens, Verified


FREE_FAILURES: Final = 3
"""Failed logins of an address before the next ones are delayed: people mistype."""
FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 4.0
"""Longest delay, shorter than the time for a login, so that the right password is still
accepted."""
FORGOTTEN_SECONDS: Final = 300.0
MAX_ADDRESSES: Final = 10_000
"""Addresses whose failures are remembered; beyond that the oldest are forgotten."""


class LoginThrottle:
    """Failed logins by address."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._failures: dict[str, tuple[int, float]] = {}
        """Number of failures and time of the last one; the address that failed last comes last."""

    def failed(self, address: str) -> None:
        count = self._count(address) + 1
        self._failures.pop(address, None)
        self._failures[address] = count, self._time()
        if len(self._failures) > MAX_ADDRESSES:
            del self._failures[next(iter(self._failures))]

    def seconds(self, address: str) -> float:
        """Return the delay of the next login from an address, right or wrong, in seconds."""
        over = self._count(address) - FREE_FAILURES
        if over < 0:
            return 0.0
        return min(FIRST_SECONDS * 2.0 ** min(over, 10), LONGEST_SECONDS)

    def _count(self, address: str) -> int:
        count, last = self._failures.get(address, (0, 0.0))
        return count if self._time() - last < FORGOTTEN_SECONDS else 0


FAILED_SECONDS: Final = 0.5
"""Seconds from the last message of a failed login to the answer. Computing takes much less."""

_NONCE_BYTES: Final = 18
_REFUSED: Final = "the user does not exist, or the password is wrong"


class Logins:
    """All logins of a broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        users: Users,
        figures: Figures,
        observe: Observer,
        tokens: "Callable[[Executor], Tokens] | None" = None,
    ) -> None:
        """`tokens` makes the verifier of tokens; None where tokens are not accepted."""
        self._loop = loop
        self._users = users
        self._figures = figures
        self._observe = observe
        self._throttle = LoginThrottle(loop.time)
        self._hashing = ThreadPoolExecutor(1, "passwords")
        """Single thread in which plaintext passwords are hashed and token signatures are verified,
        one after the other and off the event loop."""
        self._tokens = None if tokens is None else tokens(self._hashing)

    def close(self) -> None:
        self._hashing.shutdown(wait=False, cancel_futures=True)

    def choose(self, session: LoginSession, mechanism: str, *, raw: bool = False) -> None:
        """Begin a login. Raises `UnsupportedSaslMechanism` and `IllegalSaslState`."""
        if session.state not in (LoginState.OUTSIDE, LoginState.CHOSEN, LoginState.INSIDE):
            raise IllegalSaslState("a login is under way, or has failed")
        if mechanism not in session.mechanisms:
            offered = ", ".join(session.mechanisms) or "none"
            raise UnsupportedSaslMechanism(
                f"the mechanism {mechanism[:100]!r} is not offered here; offered are: {offered} "
                "(sasl.enabled.mechanisms; PLAIN only where the connection is encrypted)"
            )
        if raw and session.state is LoginState.INSIDE:
            raise IllegalSaslState("who is logged in does so again with sasl-handshake 1 only")
        if session.name and mechanism != session.mechanism:
            raise IllegalSaslState(
                f"a session of {session.mechanism} cannot go on with {mechanism}"
            )
        session.mechanism = mechanism
        session.state = LoginState.CHOSEN
        session.raw = raw

    def step(self, session: LoginSession, content: bytes) -> "Step | asyncio.Future[Step]":
        """Process the client's next message. Raises `IllegalSaslState`.

        A failed login is raised by the future as `SaslAuthenticationFailed`. The caller that
        answers it must then call `session.fail`.
        """
        if session.state is LoginState.CHOSEN:
            in_one = {PLAIN: self._plain, OAUTHBEARER: self._bearer}.get(session.mechanism)
            if in_one is None:
                return self._first(session, content)
            session.state = LoginState.BEGUN
            return self._later(partial(in_one, session, content))
        if session.state is LoginState.BEGUN and session.refused:
            return self._later(partial(self._given_up, content))
        if session.state is not LoginState.BEGUN or session.exchange is None:
            raise IllegalSaslState("no login was begun: sasl-handshake comes before it")
        return self._last(session, session.exchange, content)

    async def password(self, host: str, name: str, password: str) -> str:
        """Return the principal of a user with this plaintext password. Raises
        `SaslAuthenticationFailed`."""
        began = self._loop.time()
        await asyncio.sleep(self._throttle.seconds(host))
        if 0 < len(password.encode("utf-8", "replace")) <= MAX_PASSWORD_BYTES:
            credential = self._users.any_credential(name)
            check = partial(password_matches, credential, password)
            if await self._loop.run_in_executor(self._hashing, check):
                self._succeeded("HTTP")
                return principal_of(name)
        await self._refused(host, name, "HTTP", _REFUSED, began)
        raise SaslAuthenticationFailed(_REFUSED)

    @property
    def takes_tokens(self) -> bool:
        return self._tokens is not None

    async def token(self, host: str, token: str) -> str:
        """Return the principal named in a token. Raises `SaslAuthenticationFailed`."""
        began = self._loop.time()
        await asyncio.sleep(self._throttle.seconds(host))
        try:
            found = await self._verified(token)
        except SaslAuthenticationFailed as error:
            await self._refused(host, "", "HTTP", error.message, began)
            raise
        self._succeeded("HTTP")
        return principal_of(found.name)

    async def _verified(self, token: str) -> "Verified":
        from .tokens import TokenRefused

        if self._tokens is None:
            raise SaslAuthenticationFailed("no tokens are taken here (sasl.enabled.mechanisms)")
        try:
            return await self._tokens.verified(token)
        except TokenRefused as error:
            raise SaslAuthenticationFailed(str(error)) from None

    def _first(self, session: LoginSession, content: bytes) -> "Step | asyncio.Future[Step]":
        mechanism = SCRAM_MECHANISMS[session.mechanism]
        nonce = b64encode(os.urandom(_NONCE_BYTES)).decode()
        find = partial(self._users.credential, mechanism=mechanism)
        exchange = ScramServer(mechanism, find, nonce)
        session.state = LoginState.BEGUN
        try:
            answer = exchange.first(content)
        except SaslAuthenticationFailed as error:
            return self._refusal(session, exchange.name, error.message)
        session.exchange = exchange
        return Step(answer, False)

    def _last(
        self, session: LoginSession, exchange: ScramExchange, content: bytes
    ) -> "Step | asyncio.Future[Step]":
        session.exchange = None
        if self._throttle.seconds(session.host):
            return self._later(partial(self._scram, session, exchange, content))
        try:
            answer = self._proven(session, exchange, content)
        except SaslAuthenticationFailed as error:
            return self._refusal(session, exchange.name, error.message)
        return Step(answer, True)

    def _proven(self, session: LoginSession, exchange: ScramExchange, content: bytes) -> bytes:
        """Return the answer to the last SCRAM message, and log the client in."""
        answer = exchange.last(content)
        self._log_in(session, exchange.name)
        return answer

    async def _scram(self, session: LoginSession, exchange: ScramExchange, content: bytes) -> Step:
        began = self._loop.time()
        await asyncio.sleep(self._throttle.seconds(session.host))
        try:
            return Step(self._proven(session, exchange, content), True)
        except SaslAuthenticationFailed as error:
            await self._not_let_in(session, exchange.name, error.message, began)
            raise

    async def _plain(self, session: LoginSession, content: bytes) -> Step:
        began = self._loop.time()
        await asyncio.sleep(self._throttle.seconds(session.host))
        name = ""
        try:
            sent = read_plain(content)
            name = sent.name
            credential = self._users.any_credential(name)
            check = partial(password_matches, credential, sent.password)
            if not await self._loop.run_in_executor(self._hashing, check):
                raise SaslAuthenticationFailed(_REFUSED)
            self._log_in(session, name)
        except SaslAuthenticationFailed as error:
            await self._not_let_in(session, name, error.message, began)
            raise
        return Step(b"", True)

    async def _bearer(self, session: LoginSession, content: bytes) -> Step:
        """Log in with a token. A refused token is answered as RFC 7628 says; the client confirms
        that answer, and then the login has failed."""
        began = self._loop.time()
        await asyncio.sleep(self._throttle.seconds(session.host))
        name, is_json_error = "", False
        try:
            sent = read_bearer(content)
            is_json_error = True
            found = await self._verified(sent.token)
            is_json_error = False
            name = found.name
            if sent.authzid not in ("", name):
                raise SaslAuthenticationFailed(
                    "a user may act only in its own name, not for another"
                )
            self._log_in(session, name, found.seconds)
        except SaslAuthenticationFailed as error:
            await self._not_let_in(session, name, error.message, began)
            if not is_json_error:
                raise
            session.refused = True
            return Step(REFUSAL.encode(), False)
        return Step(b"", True)

    async def _given_up(self, content: bytes) -> Step:
        raise SaslAuthenticationFailed(
            REFUSAL if content == GIVEN_UP else "the token was refused, and the login goes on"
        )

    def _log_in(self, session: LoginSession, name: str, token_seconds: float | None = None) -> None:
        if session.name and name != session.name:
            raise SaslAuthenticationFailed(
                "the session of one user cannot go on as another's; connect anew"
            )
        most = session.place_of(name)
        if most is not None:
            raise SaslAuthenticationFailed(
                f"{principal_of(name)} has {most} connections, and more are not allowed "
                "(max.connections.per.user)"
            )
        self._succeeded(session.mechanism)
        session.log_in(name, token_seconds)

    def _refusal(self, session: LoginSession, name: str, cause: str) -> "asyncio.Future[Step]":
        async def refused() -> Step:
            began = self._loop.time()
            await self._not_let_in(session, name, cause, began)
            raise SaslAuthenticationFailed(cause)

        return self._later(refused)

    async def _not_let_in(self, session: LoginSession, name: str, cause: str, began: float) -> None:
        """Handle a failed login as `_refused` does. A login that fails only because the user has
        too many connections does not count as a failed guess."""
        if session.without_place:
            await asyncio.sleep(max(FAILED_SECONDS - (self._loop.time() - began), 0.0))
        else:
            await self._refused(session.host, name, session.mechanism, cause, began)

    async def _refused(
        self, host: str, name: str, mechanism: str, cause: str, began: float
    ) -> None:
        """Record a failed login, and wait until it may be answered."""
        self._throttle.failed(host)
        self._count(mechanism, "failed")
        shown = name.encode()[:MAX_USER_NAME_BYTES].decode("utf-8", "ignore")
        self._observe("login_failed", peer=host, user=shown, mechanism=mechanism, cause=cause)
        waited = self._loop.time() - began
        longest = self._throttle.seconds(host)
        await asyncio.sleep(max(FAILED_SECONDS + longest - waited, 0.0))

    def _succeeded(self, mechanism: str) -> None:
        self._count(mechanism, "done")

    def _count(self, mechanism: str, result: str) -> None:
        counts = self._figures.logins
        counts[mechanism, result] = counts.get((mechanism, result), 0) + 1

    def _later(self, work: Callable[[], Coroutine[Any, Any, Step]]) -> "asyncio.Future[Step]":
        return asyncio.ensure_future(work())
