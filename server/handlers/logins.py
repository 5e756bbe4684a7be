"""sasl-handshake, sasl-authenticate and authenticate: logins, in both encodings.

sasl-handshake (key 17): versions 0 to 1 (KIP-43)
     1  sasl-authenticate follows in place of bare messages (KIP-152)
sasl-authenticate (key 36): versions 0 to 1 (KIP-152)
     1  session_lifetime_ms (KIP-368)
authenticate (key 1003): native 0

Left out: GSSAPI and delegation tokens. Kafka has no `authenticate`: it is the native login.
"""

import asyncio
from collections.abc import Callable
from typing import Any

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
    IllegalSaslState,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from ..requests import Call, PendingAnswer
from ..security.session import LoginSession, LoginState, Step
from .base import Services
from .registration import handles


@handles(SASL_HANDSHAKE)
def handshake(
    services: Services, request: SaslHandshakeRequest, call: Call
) -> SaslHandshakeResponse:
    session = call.session
    if session is None or not session.mechanisms:
        return SaslHandshakeResponse(error_code=IllegalSaslState.code)
    response = SaslHandshakeResponse(mechanisms=list(session.mechanisms))
    try:
        services.security.logins.choose(session, request.mechanism, raw=call.version == 0)
    except (IllegalSaslState, UnsupportedSaslMechanism) as error:
        response.error_code = error.code
    return response


@handles(SASL_AUTHENTICATE)
def sasl_authenticate(services: Services, request: SaslAuthenticateRequest, call: Call) -> Any:
    session = _session(call)

    def respond(step: Step) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(
            auth_bytes=step.content, session_lifetime_ms=session.lifetime_ms if step.done else 0
        )

    step = services.security.logins.step(session, request.auth_bytes)
    return _answer(session, step, respond)


@handles(AUTHENTICATE)
def authenticate(services: Services, request: AuthenticateRequest, call: Call) -> Any:
    session = call.session
    if not request.mechanism:
        offered = [] if session is None else list(session.mechanisms)
        inside = session is not None and session.state is LoginState.INSIDE
        return AuthenticateResponse(mechanisms=offered, done=inside, principal=call.principal)
    session = _session(call)
    logins = services.security.logins
    if session.state in (LoginState.OUTSIDE, LoginState.INSIDE):
        logins.choose(session, request.mechanism)
    if request.mechanism != session.mechanism:
        raise IllegalSaslState(
            f"a login by {session.mechanism} cannot go on as one by {request.mechanism[:100]}"
        )
    found = session

    def respond(step: Step) -> AuthenticateResponse:
        return AuthenticateResponse(
            auth_bytes=step.content,
            done=step.done,
            session_lifetime_ms=found.lifetime_ms if step.done else 0,
            principal=found.principal,
        )

    return _answer(session, logins.step(session, request.auth_bytes), respond)


def _session(call: Call) -> LoginSession:
    if call.session is None or not call.session.mechanisms:
        raise IllegalSaslState(
            "there is no login at this address (authentication, listen, kafka.listen)"
        )
    return call.session


def _answer(
    session: LoginSession,
    step: Step | asyncio.Future[Step],
    respond: Callable[[Step], Any],
) -> Any:
    if isinstance(step, Step):
        return respond(step)

    def make() -> Any:
        try:
            return respond(step.result())
        except SaslAuthenticationFailed:
            session.fail()
            raise

    return PendingAnswer(step, make, alone=True)
