"""The name of who shows a client certificate: its subject, as Kafka writes it (RFC 2253)."""

from collections.abc import Mapping
from typing import Any, Final

_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_ESCAPED: Final = frozenset(',+"\\<>;')


def subject_name(certificate: Mapping[str, Any]) -> str:
    """`CN=alice,OU=readers,O=Example`: the parts of the subject, the last one first.

    `certificate` is what `ssl.SSLObject.getpeercert` gives.
    """
    parts = []
    for relative in reversed(certificate.get("subject", ())):
        pairs = (f"{_SHORT.get(name, name)}={_escaped(str(value))}" for name, value in relative)
        parts.append("+".join(pairs))
    return ",".join(parts)


def _escaped(value: str) -> str:
    text = "".join(f"\\{char}" if char in _ESCAPED else char for char in value)
    if text.startswith(("#", " ")):
        text = f"\\{text}"
    if value.endswith(" ") and len(value) > 1:
        text = f"{text[:-1]}\\ "
    return text
