"""Addresses to listen at, each with what holds for connections to it.

127.0.0.1:7070              not encrypted; a login as `authentication` says
tls://0.0.0.0:7070          encrypted; the same
PLAINTEXT://127.0.0.1:9092  not encrypted, no login         Kafka's names, which say it all
SSL://0.0.0.0:9092          encrypted, no login
SASL_PLAINTEXT://...        not encrypted, a login
SASL_SSL://...              encrypted, a login
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from ..values import value_class
from .address import check_no_login, split_address

OFF: Final = "off"
"""What the addresses of a protocol may be instead, but for the native one's."""


class Scheme(StrEnum):
    """What stands before an address."""

    BARE = ""
    TLS = "tls://"
    PLAINTEXT = "PLAINTEXT://"
    SSL = "SSL://"
    SASL_PLAINTEXT = "SASL_PLAINTEXT://"
    SASL_SSL = "SASL_SSL://"

    @property
    def encrypted(self) -> bool:
        return self in (Scheme.TLS, Scheme.SSL, Scheme.SASL_SSL)

    @property
    def login(self) -> bool | None:
        """Whether a login is required; `None`: as the setting `authentication` says."""
        if self in (Scheme.BARE, Scheme.TLS):
            return None
        return self in (Scheme.SASL_PLAINTEXT, Scheme.SASL_SSL)


@value_class
class ListenAddress:
    """One address of a protocol."""

    scheme: Scheme
    address: str
    """`HOST:PORT`."""

    def __str__(self) -> str:
        return f"{self.scheme}{self.address}"


def listen_addresses(text: str) -> tuple[ListenAddress, ...]:
    """The addresses in `127.0.0.1:7070,tls://0.0.0.0:7443`; none for `off`.

    Raises `ValueError` saying what is wrong.
    """
    return () if text == OFF else tuple(_split(text))


def _split(text: str) -> Iterator[ListenAddress]:
    seen = set()
    for part in text.split(","):
        found = _listen_address(part)
        if str(found) in seen and not found.address.endswith(":0"):
            raise ValueError(f"{found} is named twice")
        seen.add(str(found))
        yield found


def _listen_address(text: str) -> ListenAddress:
    check_no_login(text)
    before, separator, address = text.rpartition("://")
    scheme = Scheme.BARE
    if separator:
        by_name = {str(each).casefold(): each for each in Scheme}
        found = by_name.get(f"{before}://".casefold())
        if found is None:
            known = ", ".join(str(each) for each in Scheme if each)
            raise ValueError(f"{text!r} begins with none of {known}")
        scheme = found
    split_address(address)
    return ListenAddress(scheme, address)
