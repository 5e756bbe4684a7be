"""Login state of a connection."""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, Protocol

from ...values import value_class

ANONYMOUS: Final = "User:ANONYMOUS"
"""Principal of clients without a login, as in Kafka."""


def principal_of(name: str) -> str:
    """Return the principal of a user."""
    return f"User:{name}"


@value_class
class Step:
    """Next message of the server; `done` when the client is logged in."""

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
    """Progress of a login.

    outside -> chosen (a mechanism) -> begun (SCRAM's first message) -> inside -> chosen ...
    A failed login ends in `failed`, which is final: the connection is closed.
    """

    OUTSIDE = auto()
    CHOSEN = auto()
    BEGUN = auto()
    INSIDE = auto()
    FAILED = auto()


class LoginSession:
    """Login of one connection. Connections of ports without logins have no session."""

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
        """`mechanisms` are the offered ones, empty where only certificates count. A login is valid
        for `longest_seconds`; None: without end. `enter` takes a slot of a principal, or returns
        the limit if all its slots are taken.

        `logged_in` is called after each login, `failed` when a login was refused and its answer is
        made.
        """
        self.host = host
        self.mechanisms = mechanisms
        self._logged_in = logged_in
        self._failed = failed
        self._enter = enter
        self._longest_seconds = longest_seconds
        self._token_seconds: float | None = None
        """Remaining lifetime of the login's token; None without a token."""
        self.principal = ANONYMOUS
        self.state = LoginState.OUTSIDE
        self.mechanism = ""
        """Mechanism of the current or last login."""
        self.exchange: ScramExchange | None = None
        self.without_place = False
        """Whether the login failed because the user has too many connections, and not because of
        wrong credentials."""
        self.refused = False
        """Whether a token was refused and the client must confirm that."""
        self.raw = False
        """Whether SASL messages arrive as frames without a request header: after sasl-handshake
        0."""
        self.name = ""
        """Name of the logged-in user; empty for a login by certificate."""

    def by_certificate(self, name: str) -> bool:
        """Log in with the name from the client's certificate. Returns False if the user has too
        many connections."""
        if self._enter(principal_of(name)) is not None:
            return False
        self.principal = principal_of(name)
        self.state = LoginState.INSIDE
        return True

    def place_of(self, name: str) -> int | None:
        """Take a slot of a user. Returns None, or the limit if all slots are taken."""
        most = self._enter(principal_of(name))
        self.without_place = most is not None
        return most

    @property
    def lifetime_seconds(self) -> float | None:
        """How long the login is valid; None: as long as the connection."""
        bounds = [each for each in (self._longest_seconds, self._token_seconds) if each is not None]
        return min(bounds, default=None)

    @property
    def lifetime_ms(self) -> int:
        """How long the login is valid, as clients are told; 0 means without end."""
        seconds = self.lifetime_seconds
        return 0 if seconds is None else max(int(seconds * 1000), 1)

    def log_in(self, name: str, token_seconds: float | None = None) -> None:
        """Record the login of `name`; `token_seconds` is the lifetime of its token, None without a
        token."""
        self._token_seconds = token_seconds
        self.name = name
        self.principal = principal_of(name)
        self.state = LoginState.INSIDE
        self.exchange = None
        self.raw = self.refused = False
        self._logged_in()

    def fail(self) -> None:
        """Record that the login failed."""
        self.state = LoginState.FAILED
        self.exchange = None
        self._failed()
