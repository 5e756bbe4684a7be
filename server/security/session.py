"""Who is at the other end of a connection."""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...protocol.sasl.scram_server import ScramServer

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of those who did not log in, as Kafka calls it."""


def principal_of(name: str) -> str:
    """The principal of a user."""
    return f"User:{name}"


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


class Session:
    """One connection's login. Connections of ports that know none have no session."""

    __slots__ = (
        "_failed",
        "_logged_in",
        "exchange",
        "host",
        "mechanism",
        "mechanisms",
        "name",
        "principal",
        "raw",
        "state",
    )

    def __init__(
        self,
        host: str,
        mechanisms: Sequence[str],
        *,
        logged_in: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        """`mechanisms` are those offered; none where only a certificate counts.

        `logged_in` is called whenever a login has been done, `failed` when one was refused and the
        answer that says so is made.
        """
        self.host = host
        self.mechanisms = mechanisms
        self._logged_in = logged_in
        self._failed = failed
        self.principal = ANONYMOUS
        self.state = LoginState.OUTSIDE
        self.mechanism = ""
        """Of the login that is under way, or was last done."""
        self.exchange: ScramServer | None = None
        self.raw = False
        """Whether messages of SASL come as frames without a head: behind sasl-handshake 0."""
        self.name = ""
        """Of the user who is logged in; empty for a certificate."""

    def by_certificate(self, name: str) -> None:
        """The TLS handshake told who it is."""
        self.principal = principal_of(name)
        self.state = LoginState.INSIDE

    def log_in(self, name: str) -> None:
        """It is `name`."""
        self.name = name
        self.principal = principal_of(name)
        self.state = LoginState.INSIDE
        self.exchange = None
        self.raw = False
        self._logged_in()

    def fail(self) -> None:
        """It is not who it says."""
        self.state = LoginState.FAILED
        self.exchange = None
        self._failed()
