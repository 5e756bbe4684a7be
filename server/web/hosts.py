"""Under which names the HTTP port answers.

A browser lets a page of any site read what comes from that site's own name, and the owner of a
name can let it point here (DNS rebinding). So requests are answered only under addresses, which
have no owner who could, `localhost`, and names that the operator has given.
"""

import ipaddress
import re
from collections.abc import Collection
from typing import Final

_HOST: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*))(?::\d*)?", re.ASCII)


def is_known_host(header: str, names: Collection[str]) -> bool:
    """Whether the `Host` of a request is an address, `localhost` or one of `names`, with a port or
    without."""
    match = _HOST.fullmatch(header)
    if match is None:
        return False
    in_brackets, plain = match.groups()
    if in_brackets is not None:
        return _is_address(in_brackets, version=6)
    host = plain.lower().removesuffix(".")
    return host == "localhost" or host in names or _is_address(host, version=4)


def _is_address(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False
