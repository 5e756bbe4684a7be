"""Who is at the other end of a connection."""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, Protocol

from ...values import value_class

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of clients that did not log in, as Kafka calls it."""


def principal_of(name: str) -> str:
    """The principal of a user."""
    return f"User:{name}"


@value_class
class Step:
    """What the server says next; `done` when the client is logged in."""

    content: bytes
    done: bool


class ScramExchange(Protocol):
    """A login by SCRAM whose first message was answered: `ScramServer`."""

    @property
    def name(self) -> str:
        """The user."""
        ...

    def last(self, content: bytes, /) -> bytes:
        """The answer to the client's proof. Raises as `ScramServer.last`."""
        ...


class LoginState(Enum):
    """How far a login is.

    outside -> chosen (a mechanism) -> begun (SCRAM's first message) -> inside -> chosen ...
    A login that fails ends in `failed`, from where no way leads: the connection is closed.
    """

    OUTSIDE = auto()
    CHOSEN = auto()
    BEGUN = auto()
    INSIDE = auto()
    FAILED = auto()


class LoginSession:
    """One connection's login. Connections of ports that know none have no session."""

    __slots__ = (
        "_enter",
        "_failed",
        "_logged_in",
        "_longest_seconds",
        "_token_seconds",
        "exchange",
        "host",
        "mechanism",
        "mechanisms",
        "name",
        "principal",
        "raw",
        "refused",
        "state",
        "without_place",
    )

    def __init__(
        self,
        host: str,
        mechanisms: Sequence[str],
        *,
        logged_in: Callable[[], None],
        failed: Callable[[], None],
        longest_seconds: float | None = None,
        enter: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        """`mechanisms` are those offered; none where only a certificate counts. A login holds
        `longest_seconds`, where that is not `None`. `enter` takes a place of a principal, or says
        how many there are, all of them taken.

        `logged_in` is called whenever a login has been done, `failed` when one was refused and the
        answer that says so is made.
        """
        self.host = host
        self.mechanisms = mechanisms
        self._logged_in = logged_in
        self._failed = failed
        self._enter = enter
        self._longest_seconds = longest_seconds
        self._token_seconds: float | None = None
        """How long the token holds that the login was done with."""
        self.principal = ANONYMOUS
        self.state = LoginState.OUTSIDE
        self.mechanism = ""
        """Of the login that is under way, or was last done."""
        self.exchange: ScramExchange | None = None
        self.without_place = False
        """Whether the login failed for that, and not for what the client knows."""
        self.refused = False
        """Whether a token was refused, and the client has to take note of that."""
        self.raw = False
        """Whether messages of SASL come as frames without a head: behind sasl-handshake 0."""
        self.name = ""
        """Of the user who is logged in; empty for a certificate."""

    def by_certificate(self, name: str) -> bool:
        """The TLS handshake has shown the client's name. False when there are enough of those."""
        if self._enter(principal_of(name)) is not None:
            return False
        self.principal = principal_of(name)
        self.state = LoginState.INSIDE
        return True

    def place_of(self, name: str) -> int | None:
        """Take a place of a user; or say how many there are, all of them taken."""
        most = self._enter(principal_of(name))
        self.without_place = most is not None
        return most

    @property
    def lifetime_seconds(self) -> float | None:
        """How long the login holds; `None` as long as the connection."""
        bounds = [each for each in (self._longest_seconds, self._token_seconds) if each is not None]
        return min(bounds, default=None)

    @property
    def lifetime_ms(self) -> int:
        """The same for the client, to whom 0 is without end."""
        seconds = self.lifetime_seconds
        return 0 if seconds is None else max(int(seconds * 1000), 1)

    def log_in(self, name: str, token_seconds: float | None = None) -> None:
        """It is `name`, by a token that holds so long or by something that does not end."""
        self._token_seconds = token_seconds
        self.name = name
        self.principal = principal_of(name)
        self.state = LoginState.INSIDE
        self.exchange = None
        self.raw = self.refused = False
        self._logged_in()

    def fail(self) -> None:
        """It is not who it says."""
        self.state = LoginState.FAILED
        self.exchange = None
        self._failed()
