"""How `consume` prints a message: as JSON, as text for people, or after a template."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from ...client.results import ConsumerRecord
from ...printable import printable
from ...values import value_class
from ..errors import WrongUsage
from ..output import (
    NOTHING,
    AsIs,
    json_bytes,
    json_headers,
    json_line,
    json_time,
    shown_bytes,
    shown_headers,
    shown_number,
    shown_time,
)


class LineFormat(Protocol):
    """Formats a message as a line."""

    @property
    def needs_append_time(self) -> bool:
        """Whether the line shows when the broker appended the message."""
        ...

    def line(self, record: ConsumerRecord) -> str:
        """Return the line of a message."""
        ...


@value_class
class JsonFormat:
    """A JSON object a line."""

    needs_append_time: bool
    with_topic: bool
    """Whether the object names the topic."""

    def line(self, record: ConsumerRecord) -> str:
        fields: dict[str, object] = {"topic": record.topic} if self.with_topic else {}
        fields |= {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": json_time(record.timestamp_ms),
            "timestamp_type": record.timestamp_type,
            "key": json_bytes(record.key),
            "value": json_bytes(record.value),
        }
        if self.needs_append_time:
            fields["append_time_ms"] = json_time(record.append_time_ms)
        if record.headers:
            fields["headers"] = json_headers(record.headers)
        return json_line(fields)


@value_class
class TextFormat:
    """Time, place, key, value and headers, for people."""

    needs_append_time: bool
    with_topic: bool

    def line(self, record: ConsumerRecord) -> str:
        times = f"{shown_time(record.timestamp_ms):24}"
        if self.needs_append_time:
            times += f"  {shown_time(record.append_time_ms):24}"
        place = f"{record.partition}:{record.offset}"
        if self.with_topic:
            place = f"{record.topic}-{place}"
        key, value = shown_bytes(record.key), shown_bytes(record.value)
        return f"{times}  {place:>8}  {key}  {value}{shown_headers(record.headers)}"


_FIELDS: Final[Mapping[str, Callable[[ConsumerRecord], str]]] = {
    "topic": lambda record: record.topic,
    "partition": lambda record: str(record.partition),
    "offset": lambda record: str(record.offset),
    "time": lambda record: shown_time(record.timestamp_ms),
    "timestamp_ms": lambda record: shown_number(record.timestamp_ms),
    "timestamp_type": lambda record: record.timestamp_type or NOTHING,
    "append_time": lambda record: shown_time(record.append_time_ms),
    "append_time_ms": lambda record: shown_number(record.append_time_ms),
    "key": lambda record: shown_bytes(record.key),
    "value": lambda record: shown_bytes(record.value),
    "headers": lambda record: shown_headers(record.headers).strip() or NOTHING,
}

_CONTENT: Final[Mapping[str, Callable[[ConsumerRecord], bytes | None]]] = {
    "key": lambda record: record.key,
    "value": lambda record: record.value,
}
"""Fields of which a template may name a part: `{value.user.id}`."""

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", "e": "\x1b"}
_ESCAPED: Final = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.?)", re.DOTALL)
_INDEX: Final = re.compile(r"\d{1,9}", re.ASCII)
_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")

_KNOWN: Final = ", ".join(f"{{{name}}}" for name in _FIELDS)

Part = str | Callable[[ConsumerRecord], str]


class TemplateFormat:
    """A template with fields in braces, such as `{time} {key} {value.user.id}`.

    Characters of messages that are not printable are escaped; those of the template are printed as
    they are.
    """

    def __init__(self, template: str) -> None:
        """Raises WrongUsage for a field that does not exist, and for a brace without its other."""
        self._parts: list[Part] = []
        self.needs_append_time = False
        begin = 0
        for piece in _PIECE.finditer(template):
            self._parts.append(unescaped(template[begin : piece.start()], "--format"))
            self._parts.append(self._part(piece))
            begin = piece.end()
        self._parts.append(unescaped(template[begin:], "--format"))

    def line(self, record: ConsumerRecord) -> str:
        return AsIs(
            "".join(
                part if isinstance(part, str) else printable(part(record)) for part in self._parts
            )
        )

    def _part(self, piece: re.Match[str]) -> Part:
        text = piece[0]
        if text in ("{{", "}}"):
            return text[0]
        if piece[1] is None:
            raise WrongUsage(
                f"--format: a {text} at character {piece.start() + 1} stands alone: write "
                f"{text}{text} for the character itself"
            )
        name, _, path = piece[1].partition(".")
        if not path and not piece[1].endswith(".") and name in _FIELDS:
            self.needs_append_time |= name.startswith("append_time")
            return _FIELDS[name]
        if path and name == "headers":
            return _header(path)
        keys = path.split(".")
        if name not in _CONTENT or not all(keys):
            raise WrongUsage(
                f"--format: there is no field {printable(text)}: write {_KNOWN}, a part of a JSON "
                "value as in {value.user.id}, a header as in {headers.trace}, or {{ for a brace"
            )
        return _part_of(_CONTENT[name], keys)


def unescaped(text: str, flag: str) -> str:
    """Replace escapes such as `\\t` in the text of an option. Raises WrongUsage for one that does
    not exist."""

    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        if code in _ESCAPES:
            return _ESCAPES[code]
        if len(code) > 1 and not 0xD800 <= (number := int(code[1:], 16)) <= 0xDFFF:
            return chr(number)
        if len(code) > 1:
            raise WrongUsage(
                f"{flag}: {printable(escape[0])} is half of a character of UTF-16: write the "
                "character itself"
            )
        raise WrongUsage(
            f"{flag}: {printable(escape[0])} is no escape: write \\n, \\t, \\r, \\0, \\e, \\xNN, "
            "\\uNNNN, or \\\\ for a backslash"
        )

    return _ESCAPED.sub(character, text)


def _header(name: str) -> Callable[[ConsumerRecord], str]:
    """Return what formats the last header of this name, as clients take it."""

    def shown(record: ConsumerRecord) -> str:
        values = [value for found, value in record.headers if found == name]
        return shown_bytes(values[-1]) if values else NOTHING

    return shown


def _part_of(
    content: Callable[[ConsumerRecord], bytes | None], keys: list[str]
) -> Callable[[ConsumerRecord], str]:
    """Return what formats a part of a JSON key or value; `NOTHING` where there is no such part."""

    def shown(record: ConsumerRecord) -> str:
        try:
            found: Any = json.loads(content(record) or b"null")
        except (ValueError, RecursionError):
            return NOTHING
        for key in keys:
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and _INDEX.fullmatch(key) and int(key) < len(found):
                found = found[int(key)]
            else:
                return NOTHING
        if isinstance(found, str):
            return found
        return NOTHING if found is None else json.dumps(found, ensure_ascii=False)

    return shown
