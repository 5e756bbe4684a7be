"""Under which names the page answers.

A browser lets a page of any site read what comes from that site's own name, and the owner of a
name can let it point here (DNS rebinding). So the page answers only under names that nobody else
can own: addresses, this machine's name, and names that the public name system does not have.
"""

import ipaddress
import socket
from typing import Final

PRIVATE_ENDINGS: Final = (".localhost", ".local", ".internal", ".home.arpa", ".test")
"""Reserved: nobody can register a name under them."""


def is_own_host(header: str) -> bool:
    """Whether the `Host` of a request is a name that only this machine's people can have given."""
    host = _name_in(header).lower().rstrip(".")
    if not host:
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        # A name without a dot is in nobody's domain but the machine's own.
        return "." not in host or host.endswith(PRIVATE_ENDINGS) or host == _own_name()
    return True


def _name_in(header: str) -> str:
    """The host without its port, an IPv6 address without its brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if header.count(":") == 1 else header


def _own_name() -> str:
    return socket.gethostname().lower()
