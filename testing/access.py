"""Access for tests: users, rules and quotas, of a running broker, changed at once, and of none; and
logins frame by frame."""

import os
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..protocol.api.security.authenticate import AuthenticateRequest
from ..protocol.api.security.sasl_authenticate import SaslAuthenticateRequest
from ..protocol.api.security.sasl_handshake import SaslHandshakeRequest
from ..protocol.errors import NO_ERROR, error_from_code
from ..protocol.sasl.mechanisms import (
    OAUTHBEARER,
    PLAIN,
    OAuthBearerClient,
    PlainClient,
    SaslClient,
)
from ..protocol.sasl.scram import ScramClient
from ..server.broker import Broker
from ..storage.events import ignore_events
from ..storage.files import SystemFiles
from ..storage.metadata.access_records import AccessRecord, AccessState
from ..storage.metadata.local_metadata import offline_metadata
from .wire import Wire

R = TypeVar("R")
Plan = Callable[[], tuple[R, Sequence[AccessRecord]]]


def change_access(broker: Broker, plan: Plan[R]) -> R:
    """Change users, ACLs or quotas of a running broker. The change is in force when this
    returns."""
    store: Any = broker.services.metadata
    metadata = broker.directory.metadata
    outcome, records = plan()
    for record in records:
        metadata.append(record)
    metadata.log.flusher.flush()
    metadata.apply()
    access = store._access = metadata.state.access
    taking = broker.security.take(access, _never)
    try:
        taking.send(None)
    except StopIteration:
        return outcome
    raise AssertionError("so many are for a thread")


async def _never(_: object) -> None:
    raise AssertionError


class StoredAccess:
    """What is stored in the data directory of a broker that does not run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.state = AccessState()
        self.change(lambda: (None, ()))

    def change(self, plan: Plan[R]) -> R:
        """Make a change, as `horolog user add --data-dir` does."""
        self._path.mkdir(exist_ok=True)
        with offline_metadata(
            SystemFiles(), self._path, ignore_events, advice="stop it"
        ) as metadata:
            outcome = metadata.change_access(plan)
            self.state = metadata.state.access
        return outcome


class AccessInMemory:
    """Users, ACLs and quotas in memory, without a broker. `use` is called after each change."""

    def __init__(self, use: Callable[[AccessState], None] = lambda _: None) -> None:
        self.state = AccessState()
        self._use = use

    def change(self, plan: Plan[R]) -> R:
        """Make a change, as a store does."""
        outcome, records = plan()
        for record in records:
            self.state = self.state.after(record)
        self._use(self.state)
        return outcome


def sasl_client(mechanism: str, name: str, password: str) -> SaslClient:
    """Return the client's side of a mechanism. For OAUTHBEARER the password is the token."""
    if mechanism == OAUTHBEARER:
        return OAuthBearerClient(password)
    if mechanism == PLAIN:
        return PlainClient(name, password)
    return ScramClient(mechanism, name, password, b64encode(os.urandom(18)).decode())


async def log_in(client: Wire, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> Any:
    """Log in over the native protocol and return the last answer. Raises the broker's error."""
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
    """Log in over Kafka's protocol and return the last answer. Raises the broker's error."""
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
