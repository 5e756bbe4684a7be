"""Subject of a client certificate as Java and Kafka write it (RFC 2253):
`CN=alice,OU=readers,O=Example`, the last part first.

The certificate is DER (X.690): nested elements of tag, length and content. OpenSSL has verified it.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

_SHORT: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Attributes written by name. Others are written as their numbers, with the value in hex."""

_TEXT: Final = {
    12: "utf-8",
    19: "ascii",
    20: "latin-1",
    22: "ascii",
    27: "ascii",
    28: "utf-32-be",
    30: "utf-16-be",
}
"""Encodings of the string types, by tag."""

_VERSION: Final = 0xA0
_SUBJECT: Final = 5
"""Position of the subject after the version: serial number, algorithm, issuer, validity,
subject."""

_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SPACES: Final = " \r"


class _NamePart(NamedTuple):
    tag: int
    content: bytes
    whole: bytes


def subject_name(certificate: bytes) -> str:
    """Return the subject of a DER certificate. Raises `ValueError` for an invalid certificate."""
    (outer,) = _parts(certificate)
    body, *_ = _parts(outer.content)
    fields = list(_parts(body.content))
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < _SUBJECT:
        raise ValueError("the certificate has no subject")
    parts = [
        "+".join(map(_written, _parts(relative.content)))
        for relative in _parts(fields[_SUBJECT - 1].content)
    ]
    return ",".join(reversed(parts))


def _parts(content: bytes) -> Iterator[_NamePart]:
    at = 0
    while at < len(content):
        begin = at
        tag, size = content[at : at + 2].ljust(2, b"\0")
        at += 2
        if tag & 0x1F == 0x1F:
            raise ValueError("the certificate has a tag of several bytes")
        if size & 0x80:
            length_bytes = size & 0x7F
            size = int.from_bytes(content[at : at + length_bytes])
            at += length_bytes
        if at + size > len(content):
            raise ValueError("the certificate is cut off")
        yield _NamePart(tag, content[at : at + size], content[begin : at + size])
        at += size


def _written(attribute: _NamePart) -> str:
    kind, value = _parts(attribute.content)
    name = _number(kind.content)
    text = _text(value)
    if name not in _SHORT or text is None:
        return f"{_SHORT.get(name, name)}=#{value.whole.hex()}"
    return f"{_SHORT[name]}={_escaped(text)}"


def _text(value: _NamePart) -> str | None:
    encoding = _TEXT.get(value.tag)
    return None if encoding is None else value.content.decode(encoding, "replace")


def _number(content: bytes) -> str:
    """Return an object identifier as dotted numbers. They are encoded in base 128, the first two in
    one."""
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2) if numbers else 0
    return ".".join(map(str, (first, (numbers or [0])[0] - 40 * first, *numbers[1:])))


def _escaped(value: str) -> str:
    text = "".join(f"\\{char}" if char in _ESCAPED else char for char in value)
    text = text.replace("\0", "\\00")
    begin, end = len(text) - len(text.lstrip(_SPACES)), len(text.rstrip(_SPACES))
    return "".join(
        f"\\{char}" if not begin <= place < end else char for place, char in enumerate(text)
    )
