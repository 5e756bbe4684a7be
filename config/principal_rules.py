r"""`tls.principal.mapping.rules`: from the subject of a client's certificate to a name (KIP-371).

RULE:PATTERN/REPLACEMENT/      the whole subject matches PATTERN; the name is REPLACEMENT
RULE:PATTERN/REPLACEMENT/L     the same in lower case; U in upper case
DEFAULT                        the subject as it is

The first matching rule is used. Rules are separated by commas; `\/` in a rule stands for `/`.

Patterns are those of RE2, because they are applied to text sent by clients: RE2's time is
proportional to the length of the text, whatever the pattern. RE2 supports Java's patterns except
look-ahead, look-behind and back references.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

DEFAULT: Final = "DEFAULT"

MAX_RULES: Final = 100
MAX_PATTERN_CHARS: Final = 500
MAX_SUBJECT_CHARS: Final = 1024
"""Longest subject to which patterns are applied."""
MAX_INSTRUCTIONS: Final = 10_000
"""Limit for all patterns together, once compiled."""

_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_BETWEEN: Final = re.compile(r"\s*,\s*")
_NOT_AS_IN_JAVA: Final = re.compile(r"(?<!\\)(?:\\\\)*\[(?:\\.|[^\]\\])*(?:\[|&&)")
"""A character class inside a class, or an intersection (`&&`): RE2 would match other characters."""


class NoRule(ValueError):
    """No rule matches this subject."""


class _Rule(NamedTuple):
    pattern: Any
    """A compiled pattern of RE2. `None` matches any subject and keeps it unchanged."""
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        name = "".join(_filled(self.replacement, (found.group(), *found.groups())))
        return {"L": name.lower, "U": name.upper}.get(self.case, lambda: name)()


class PrincipalRules:
    """The mapping rules of a broker."""

    def __init__(self, text: str) -> None:
        """Parse the rules. Raises `ValueError` that says which rule is wrong, and why."""
        self._rules: Sequence[_Rule] = tuple(_parsed(text.strip() or DEFAULT))
        size = sum(rule.pattern.programsize for rule in self._rules if rule.pattern is not None)
        if size > MAX_INSTRUCTIONS:
            raise ValueError(
                f"all patterns together compile to {size} instructions, and {MAX_INSTRUCTIONS} "
                "are allowed"
            )

    def name(self, subject: str) -> str:
        """Return the name for a subject. Raises `NoRule`."""
        for rule in self._rules:
            if rule.pattern is not None and len(subject) > MAX_SUBJECT_CHARS:
                raise NoRule(
                    f"the subject has {len(subject)} characters, and rules take {MAX_SUBJECT_CHARS}"
                )
            name = rule.apply(subject)
            if name is not None:
                if not name.strip():
                    raise NoRule("a rule makes an empty name of it")
                return name
        raise NoRule("none of tls.principal.mapping.rules is for it")


def _parsed(text: str) -> Iterator[_Rule]:
    position = count = 0
    while position < len(text):
        count += 1
        if count > MAX_RULES:
            raise ValueError(f"there are more than {MAX_RULES} rules")
        rule = _RULE.match(text, position)
        if rule is not None:
            position = rule.end()
            yield _Rule(_compiled(rule[1]), rule[2], rule[3])
        elif text.startswith(DEFAULT, position):
            position += len(DEFAULT)
            yield _Rule(None)
        else:
            raise ValueError(f"this is no rule: {_cut(text[position:])}")
        comma = _BETWEEN.match(text, position)
        if comma is None and position < len(text):
            raise ValueError(f"a comma or the end must be before {_cut(text[position:])}")
        position = len(text) if comma is None else comma.end()


def _compiled(written: str) -> Any:
    if len(written) > MAX_PATTERN_CHARS:
        raise ValueError(f"a pattern has more than {MAX_PATTERN_CHARS} characters")
    try:
        import re2
    except ModuleNotFoundError:
        raise ValueError(
            "a RULE needs the package google-re2: install horolog[certificates], or take DEFAULT"
        ) from None
    options = re2.Options()
    options.log_errors = False
    pattern = written.replace("\\/", "/")
    try:
        if _NOT_AS_IN_JAVA.search(pattern):
            raise ValueError("a class within a class, and &&, cannot be had")
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        why = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"the pattern {_cut(written)} is refused: {why}") from None
    except ValueError as error:
        raise ValueError(f"the pattern {_cut(written)} is refused: {error}") from None


def _filled(replacement: str, found: Sequence[str | None]) -> Iterator[str]:
    """Yield the replacement with groups in place of `$1`, `$2`. As in Kafka, a number without a
    group stays as it is."""
    position, groups = 0, len(found) - 1
    while position < len(replacement):
        char = replacement[position]
        position += 1
        if char == "\\" and position < len(replacement):
            yield replacement[position]
            position += 1
            continue
        digit = replacement[position : position + 1]
        if char != "$" or not (digit.isascii() and digit.isdecimal()) or int(digit) > groups:
            yield char
            continue
        number, position = int(digit), position + 1
        while (more := replacement[position : position + 1]).isascii() and more.isdecimal():
            if number * 10 + int(more) > groups:
                break
            number, position = number * 10 + int(more), position + 1
        yield found[number] or ""


def _cut(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}...")
