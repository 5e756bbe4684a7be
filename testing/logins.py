"""Logins frame by frame, for tests."""

import os
from base64 import b64encode
from typing import Any

from ..protocol.api.security.authenticate import AuthenticateRequest
from ..protocol.api.security.sasl_authenticate import SaslAuthenticateRequest
from ..protocol.api.security.sasl_handshake import SaslHandshakeRequest
from ..protocol.errors import NO_ERROR, error_from_code
from ..protocol.sasl.mechanisms import OAUTHBEARER, PLAIN, SaslClient
from ..protocol.sasl.oauthbearer import OAuthBearerClient
from ..protocol.sasl.plain import PlainClient
from ..protocol.sasl.scram_client import ScramClient
from .wire import Wire


def sasl_client(mechanism: str, name: str, password: str) -> SaslClient:
    """The client's side of a mechanism; for OAUTHBEARER the password is the token."""
    if mechanism == OAUTHBEARER:
        return OAuthBearerClient(password)
    if mechanism == PLAIN:
        return PlainClient(name, password)
    return ScramClient(mechanism, name, password, b64encode(os.urandom(18)).decode())


async def log_in(client: Wire, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> Any:
    """Log in by the native protocol; returns the last answer. Raises what the broker says."""
    sasl = sasl_client(mechanism, name, password)
    said: bytes | None = sasl.first()
    while True:
        request = AuthenticateRequest(mechanism=mechanism, auth_bytes=said or b"")
        answer = await client.call(request)
        said = sasl.respond(answer.auth_bytes)
        if answer.done:
            assert sasl.complete
            return answer


async def log_in_to_kafka(
    client: Wire, name: str, password: str, mechanism: str = "SCRAM-SHA-512"
) -> Any:
    """Log in by Kafka's protocol; returns the last answer. Raises what the broker says."""
    chosen = await client.call(SaslHandshakeRequest(mechanism=mechanism))
    if chosen.error_code != NO_ERROR:
        raise error_from_code(chosen.error_code)
    sasl = sasl_client(mechanism, name, password)
    said: bytes | None = sasl.first()
    while True:
        answer = await client.call(SaslAuthenticateRequest(auth_bytes=said or b""))
        if answer.error_code != NO_ERROR:
            raise error_from_code(answer.error_code, answer.error_message)
        said = sasl.respond(answer.auth_bytes)
        if said is None:
            return answer
