"""The SASL mechanisms, their names and numbers, and the interface of their clients."""

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
    """A variant of SCRAM. `number` is Kafka's, in its requests about credentials."""

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
"""The variants of SCRAM, by name."""


class SaslClient(Protocol):
    """The client's side of one authentication.

    `first` returns the client's first message; `respond` returns the answer to a server's message,
    or `None` if there is nothing left to send. Both raise `SaslAuthenticationFailed`, `respond`
    also for a server that does not know the password. The server is authenticated only once
    `complete` is true.
    """

    @property
    def mechanism(self) -> str: ...

    @property
    def complete(self) -> bool: ...

    def first(self) -> bytes: ...

    def respond(self, challenge: bytes) -> bytes | None: ...
