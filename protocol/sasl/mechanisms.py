"""The mechanisms, their names and numbers, and what their clients have in common."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from ...values import value_class

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"


@value_class
class ScramMechanism:
    """A form of SCRAM. `number` is Kafka's, in its requests about credentials."""

    name: str
    number: int
    hash_name: str
    hash_bytes: int


SCRAM_MECHANISMS: Final[Mapping[str, ScramMechanism]] = MappingProxyType(
    {
        mechanism.name: mechanism
        for mechanism in (
            ScramMechanism(SCRAM_SHA_256, 1, "sha256", 32),
            ScramMechanism(SCRAM_SHA_512, 2, "sha512", 64),
        )
    }
)
"""By name."""


class SaslClient(Protocol):
    """The client's side of one exchange.

    `first` is what it begins with; `respond` gives the answer to what the server says, or `None`
    when there is nothing left to say. Both raise `SaslAuthenticationFailed`, the latter also for a
    server that does not know the password. Only when `complete` is the server known to be the one.
    """

    @property
    def mechanism(self) -> str: ...

    @property
    def complete(self) -> bool: ...

    def first(self) -> bytes: ...

    def respond(self, challenge: bytes) -> bytes | None: ...
