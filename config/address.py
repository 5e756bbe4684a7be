"""Addresses: `HOST:PORT`, host names, and addresses to listen at, with the properties of their
connections."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from ..values import value_class

OFF: Final = "off"
"""Value that turns a port off. Not allowed for the native protocol."""

_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:\[\]/]+)):(\d{1,5})", re.ASCII)
_LABEL_MAXIMUM: Final = 63
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z+_]{0,19}://", re.ASCII)

_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_LOOPBACK: Final = re.compile(rf"::1|127(?:\.{_OCTET}){{3}}", re.ASCII)

_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_HOST_NAME_MAX: Final = 253


class Scheme(StrEnum):
    """The scheme before an address."""

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
        """Whether a login is required; `None` if the setting `authentication` decides."""
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
    """Return the addresses in `127.0.0.1:7070,tls://0.0.0.0:7443`; none for `off`.

    Raises `ValueError` that says what is wrong.
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


def host_names(text: str) -> tuple[str, ...] | None:
    """Return the names in `broker, Kafka.example.com`, in lower case; `None` if one is not a host
    name."""
    names = tuple(name.strip().lower() for name in text.split(",")) if text.strip() else ()
    if all(len(name) <= _HOST_NAME_MAX and _HOST_NAME.fullmatch(name) for name in names):
        return names
    return None


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of `127.0.0.1:7070`, `broker.example:7070` or `[::1]:7070`.

    Port 0 is allowed: it requests any free port. Raises `ValueError` that says what is wrong.
    """
    check_no_login(text)
    match = _ADDRESS.fullmatch(text)
    if match is None or not text.isprintable() or not _are_labels(match[2] or ""):
        raise ValueError(f"{text!r} is not HOST:PORT, for example 127.0.0.1:7070 or [::1]:7070")
    port = int(match[3])
    if port > 65535:
        raise ValueError(f"{text!r} has port {port}, and ports end at 65535")
    return match[1] or match[2], port


def check_no_login(text: str) -> None:
    """Raise `ValueError` for `user:password@HOST:PORT`, alone or among several addresses. The
    message leaves out the login, because errors and logs may be read by others."""
    if "@" in text:
        raise ValueError(
            f"{without_login(text)!r} has a login before the @, which is no part of an address: "
            "give the user and the password apart from it"
        )


def without_login(text: str) -> str:
    """Return addresses or URLs in a form that may be shown: `...` replaces a login.

    Everything before the last @ is removed, except the scheme, because a password may contain any
    character.
    """
    before, at, rest = text.rpartition("@")
    if not at:
        return text
    scheme = _SCHEME.match(before)
    return f"{scheme[0] if scheme else ''}...@{rest}"


def is_loopback(host: str) -> bool:
    """Whether a host is an IP address that never leaves the machine; false for a name."""
    return _LOOPBACK.fullmatch(host) is not None


def _are_labels(name: str) -> bool:
    """Whether the labels of a host name have a length that DNS allows. The name may end with one
    dot."""
    labels = name.removesuffix(".").split(".")
    return name == "" or all(0 < len(label) <= _LABEL_MAXIMUM for label in labels)


def join_address(host: str, port: int) -> str:
    """Return the text that `split_address` splits. An IPv6 host gets brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
