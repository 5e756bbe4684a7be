"""How etcd and a cluster in it are named."""

import re
from typing import Final

from .address import without_login

ENDPOINTS_FORM: Final = (
    "up to nine of http://HOST:PORT or https://HOST:PORT separated by commas, or empty"
)
NAME_FORM: Final = "letters, digits, '.', '_' and '-', 1 to 100 of them, or empty"

ENDPOINTS_MAX: Final = 9
"""More members than an etcd cluster has."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)


def etcd_endpoints(text: str) -> tuple[str, ...]:
    """Addresses of etcd's members, separated by commas; empty: none. Raises `ValueError`."""
    each = text.split(",") if text.strip() else []
    if len(each) > ENDPOINTS_MAX:
        raise ValueError(f"are {len(each)}")
    return tuple(_endpoint(one.strip()) for one in each)


def _endpoint(text: str) -> str:
    from urllib.parse import urlsplit  # most brokers start without

    parts = urlsplit(text)
    usable = parts.scheme in ("http", "https") and parts.hostname and parts.port
    if not usable or parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"{without_login(text)[:100]!r} is none")
    return f"{parts.scheme}://{parts.netloc}"


def check_cluster_name(text: str) -> None:
    """Raises `ValueError`."""
    if text and not _NAME.fullmatch(text):
        raise ValueError("are other characters or too many")
