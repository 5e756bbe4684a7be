"""Addresses of what a client talks to: Horolog brokers, or a Kafka cluster.

127.0.0.1:7070                  a Horolog broker, over its own protocol
a:7070,b:7070                   Horolog brokers with the same topics, of which one leads
kafka://a:9092,b:9092           a Kafka cluster, or Kafka's port of a Horolog broker
tls://a:7070, kafka+tls://a:9092,b:9092
                                the same over TLS
"""

from dataclasses import replace
from typing import Final

from ...config.address import check_no_login, split_address
from ...values import value_class
from ..security.security import Security

KAFKA: Final = "kafka://"
TLS: Final = "tls://"
KAFKA_TLS: Final = "kafka+tls://"

_SCHEMES: Final = {KAFKA: (True, False), TLS: (False, True), KAFKA_TLS: (True, True)}
"""The protocol by URL scheme: (Kafka's protocol, TLS)."""


@value_class
class Servers:
    """Addresses to connect to first, with protocol and security."""

    addresses: tuple[str, ...]
    """`HOST:PORT`, at least one; any brokers of the cluster."""
    kafka: bool
    tls: bool = False
    """Whether the address says TLS; `security` may require it too."""
    security: Security | None = None

    def __str__(self) -> str:
        return scheme(kafka=self.kafka, tls=self.tls) + ",".join(self.addresses)

    @property
    def several(self) -> bool:
        """Whether another broker may take over from a lost one."""
        return self.kafka or len(self.addresses) > 1

    @property
    def channel(self) -> Security | None:
        """Security of connections, with the final value of `tls`; None for plaintext without
        authentication.

        Raises SecurityError for a contradiction between address and security.
        """
        if self.security is None and not self.tls:
            return None
        # Imported only here: most clients need no security.
        from ..errors import SecurityError
        from ..security.security import Security

        if self.security is None:
            return Security(tls=True)
        if self.tls and self.security.tls is False:
            raise SecurityError(
                f"{self} is an address of TLS, and the security that goes with it is without: "
                "leave one of them out"
            )
        tls = self.tls or bool(self.security.tls)
        found = replace(self.security, tls=tls)
        return found if tls or found.mechanism is not None else None


def scheme(*, kafka: bool, tls: bool) -> str:
    """Return the URL scheme of the protocol; empty for the native protocol without TLS."""
    return next((text for text, kind in _SCHEMES.items() if kind == (kafka, tls)), "")


def parse_servers(given: str | Servers) -> Servers:
    """Parse an address. Raises TypeError, or ValueError that explains what is wrong."""
    if isinstance(given, Servers):
        return given
    if not isinstance(given, str):
        raise TypeError(f"address is a str, not {type(given).__name__}")
    check_no_login(given)
    found = next((text for text in _SCHEMES if given.startswith(text)), "")
    kafka, tls = _SCHEMES.get(found, (False, False))
    rest = given.removeprefix(found)
    if "://" in rest:
        raise ValueError(
            f"{given!r} is neither HOST:PORT[,HOST:PORT...] nor kafka://HOST:PORT[,HOST:PORT...], "
            "nor one of these over TLS: tls://HOST:PORT[,...], kafka+tls://HOST:PORT[,...]"
        )
    if kafka:
        rest = rest.rstrip("/")
    addresses = tuple(one.strip() for one in rest.split(","))
    for one in addresses:
        split_address(one)
    return Servers(addresses, kafka=kafka, tls=tls)


def with_security(given: str | Servers, security: Security | None) -> Servers:
    """Parse an address and add `security`. Raises ValueError, TypeError."""
    found = parse_servers(given)
    if security is None:
        return found
    from ..security.security import Security

    if not isinstance(security, Security):
        raise TypeError(f"security is a Security, not {type(security).__name__}")
    return replace(found, security=security)
