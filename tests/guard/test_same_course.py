"""Nothing that a login which fails costs tells whether its user exists.

Counted, not measured: every hash, every comparison and every wait of a login, by how much it works
on. An unknown user, a wrong password and a user without a password of that mechanism have the same
list.
"""

import asyncio
import hashlib
import hmac
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest

from horolog.clock import SystemClock
from horolog.protocol.errors import SaslAuthenticationFailed
from horolog.protocol.limits import MIN_SCRAM_ITERATIONS
from horolog.protocol.sasl.mechanisms import SCRAM_MECHANISMS
from horolog.protocol.sasl.scram import credential_of, salted_password
from horolog.server.metrics.figures import Figures
from horolog.server.security.logins import FAILED_SECONDS, Logins
from horolog.server.security.session import LoginSession, LoginState, Step
from horolog.server.security.users import DEFAULT_ITERATIONS, UserEntry, Users
from horolog.testing.access import AccessInMemory, sasl_client
from horolog.testing.logs import RecordedEvents

from .conftest import StandingLoop

PASSWORD: Final = "wonderland-7f3a9c"
ALICE, NOBODY = "alice", "abide"
"""Of the same length: a name's own is known to who sends it."""

WAYS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "HTTP")


class Ledger:
    """What was computed and waited for, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[tuple[object, ...]] = []
        self._patch = monkeypatch
        self._count(hmac, "digest", lambda key, data, name: (name, len(key), len(data)))
        self._count(hmac, "compare_digest", lambda one, other: (len(one), len(other)))
        self._count(hashlib, "new", lambda name, data: (name, len(data)))
        self._count(
            *(hashlib, "pbkdf2_hmac"),
            lambda name, text, salt, rounds: (name, len(text), len(salt), rounds),
        )

        sleep, thread = asyncio.sleep, threading.get_ident()

        async def waited(seconds: float) -> None:
            if threading.get_ident() != thread:
                await sleep(seconds)  # In the loop of another broker of this process.
            else:
                self.lines.append(("wait", seconds))

        monkeypatch.setattr(asyncio, "sleep", waited)

    def _count(self, module: Any, name: str, told: Callable[..., tuple[object, ...]]) -> None:
        real = getattr(module, name)

        def counted(*arguments: Any) -> Any:
            self.lines.append((name, *told(*arguments)))
            return real(*arguments)

        self._patch.setattr(module, name, counted)


@pytest.fixture
def stored() -> AccessInMemory:
    return AccessInMemory()


@pytest.fixture
def users(stored: AccessInMemory) -> Users:
    """Alice has both passwords, with the usual rounds."""
    found = Users(lambda: stored.state, bytes)
    entries = []
    for mechanism in SCRAM_MECHANISMS.values():
        salt = bytes(range(16))
        salted = salted_password(mechanism, PASSWORD, salt, DEFAULT_ITERATIONS)
        entries.append(UserEntry(ALICE, credential_of(mechanism, salted, salt, DEFAULT_ITERATIONS)))
    assert stored.change(lambda: found.planned([entries])) == [None]
    return found


async def attempt(logins: Logins, way: str, name: str, password: str) -> str:
    """Log in; returns what is said to who is not let in."""
    if way == "HTTP":
        try:
            return await logins.password("127.0.0.1", name, password)
        except SaslAuthenticationFailed as error:
            return error.message
    session = LoginSession("127.0.0.1", WAYS, logged_in=lambda: None, failed=lambda: None)
    logins.choose(session, way)
    client = sasl_client(way, name, password)
    said: bytes | None = client.first()
    try:
        while session.state is not LoginState.INSIDE:
            answer = logins.step(session, said or b"")
            step = answer if isinstance(answer, Step) else await answer
            said = client.respond(step.content)
    except SaslAuthenticationFailed as error:
        return error.message
    return session.principal


@pytest.mark.parametrize("way", WAYS)
async def test_the_same_work_and_the_same_wait(
    users: Users, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(monkeypatch)
    lists, texts = [], []
    for name in (ALICE, NOBODY):
        figures = Figures(SystemClock(), 60_000)
        loop: Any = StandingLoop()
        logins = Logins(loop, users, figures, RecordedEvents())
        ledger.lines = []
        texts.append(await attempt(logins, way, name, "not-" + PASSWORD))
        lists.append(ledger.lines)
        logins.close()
    assert texts[0] == texts[1] == "the user does not exist, or the password is wrong"
    assert lists[0] == lists[1]
    kinds = [line[0] for line in lists[0]]
    assert "compare_digest" in kinds
    waits = [line[1] for line in lists[0] if line[0] == "wait"]
    assert waits[-1] == FAILED_SECONDS
    assert sum(waits) == FAILED_SECONDS  # type: ignore[arg-type]
    compared = [line[1:] for line in lists[0] if line[0] == "compare_digest"]
    assert all(one == other for one, other in compared)


@pytest.mark.parametrize("way", WAYS)
async def test_the_ledger_tells_a_difference(
    users: Users, stored: AccessInMemory, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With other rounds, or a login that is done, the lists differ: they are no empty ones."""
    ledger = Ledger(monkeypatch)
    loop: Any = StandingLoop()
    logins = Logins(loop, users, Figures(SystemClock(), 60_000), RecordedEvents())
    assert await attempt(logins, way, ALICE, PASSWORD) == "User:alice"
    done, ledger.lines = ledger.lines, []
    await attempt(logins, way, ALICE, "not-" + PASSWORD)
    assert ledger.lines != done
    mechanism = SCRAM_MECHANISMS["SCRAM-SHA-512" if way in ("PLAIN", "HTTP") else way]
    few = MIN_SCRAM_ITERATIONS
    salted = salted_password(mechanism, PASSWORD, b"0" * 16, few)
    other = UserEntry(ALICE, credential_of(mechanism, salted, b"0" * 16, few))
    stored.change(lambda: users.planned([[other]]))
    wrong, ledger.lines = ledger.lines, []
    await attempt(logins, way, ALICE, "not-" + PASSWORD)
    assert ledger.lines != wrong
    logins.close()
