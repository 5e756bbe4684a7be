"""`tls.principal.mapping.rules`: from the subject of a client's certificate to a name (KIP-371).

RULE:PATTERN/REPLACEMENT/      the subject as a whole is like PATTERN; the name is REPLACEMENT
RULE:PATTERN/REPLACEMENT/L     the same in lower case; U in upper case
DEFAULT                        the subject as it is

The first rule that fits counts. Rules are separated by commas; `\\/` in a rule stands for `/`.

A pattern is tried on what a client sends, so one that could take exponential time is refused: what
is repeated must have no repetition and no alternative in it, and nothing may be looked for that was
found before.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ..values import value_class

DEFAULT: Final = "DEFAULT"
FORM: Final = "RULE:PATTERN/REPLACEMENT/, with L or U behind it or not, or DEFAULT, by commas"

MAX_RULES: Final = 100
MAX_PATTERN_CHARS: Final = 500
MAX_REPETITIONS: Final = 12
"""Without a bound, in one pattern: KIP-371 has six."""
MAX_SUBJECT_CHARS: Final = 1024
"""Longest subject that patterns are tried on."""

_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_BETWEEN: Final = re.compile(r"\s*,\s*")
_JAVA_NAME: Final = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")
_UNBOUNDED: Final = re.compile(r"[*+]|\{\d+,\}")
_REPEATED: Final = re.compile(r"[*+?]|\{\d+(?:,\d*)?\}")
_GROUP: Final = re.compile(r"\(\?(?::|P<[A-Za-z][A-Za-z0-9]*>)")


class NoRule(Exception):
    """None of the rules is for this subject."""


@value_class
class _Rule:
    pattern: re.Pattern[str] | None
    """`None` takes any subject, as it is."""
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        name = "".join(_filled(self.replacement, found))
        return {"L": name.lower, "U": name.upper}.get(self.case, lambda: name)()


class PrincipalRules:
    """The rules of a broker."""

    def __init__(self, text: str) -> None:
        """Raises `ValueError` saying which rule is wrong, and how."""
        self._rules: Sequence[_Rule] = tuple(_parsed(text.strip() or DEFAULT))

    def name(self, subject: str) -> str:
        """The name of who has this subject. Raises `NoRule`."""
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


def _compiled(written: str) -> re.Pattern[str]:
    if len(written) > MAX_PATTERN_CHARS:
        raise ValueError(f"a pattern has more than {MAX_PATTERN_CHARS} characters")
    pattern = _JAVA_NAME.sub(r"(?P<\1>", written.replace("\\/", "/"))
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"the pattern {_cut(written)} is wrong: {error}") from None
    reason = _slow(pattern)
    if reason:
        raise ValueError(f"the pattern {_cut(written)} is refused: {reason}")
    return compiled


def _slow(pattern: str) -> str:
    """Why a pattern that compiles could keep a processor busy; empty for one that cannot."""
    bare = _without_classes(pattern)
    if len(_UNBOUNDED.findall(bare)) > MAX_REPETITIONS:
        return f"it has more than {MAX_REPETITIONS} repetitions"
    begun: list[int] = []
    position = 0
    while position < len(bare):
        if bare[position] == "(":
            begun.append(position)
            group = _GROUP.match(bare, position)
            if group is None and bare.startswith("(?", position):
                return "of groups with (? only (?: and (?<name> may be"
            position = group.end() if group else position + 1
            continue
        if bare[position] == ")":
            inside = bare[begun.pop() : position]
            inside = inside[len(match[0]) if (match := _GROUP.match(inside)) else 1 :]
            repeated = _REPEATED.match(bare, position + 1)
            if repeated and repeated[0] != "?" and ("|" in inside or _REPEATED.search(inside)):
                return "what is repeated has a repetition or an alternative in it"
        position += 1
    return "it looks for what it found before" if re.search(r"\\[1-9]", pattern) else ""


def _without_classes(pattern: str) -> str:
    """The pattern with a letter in the place of each `\\x` and each `[...]`."""
    return re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "a", pattern, flags=re.DOTALL)


def _filled(replacement: str, found: re.Match[str]) -> Iterator[str]:
    """The replacement with the groups in the place of `$1`, `$2`; a number that no group has stands
    for itself, as in Kafka."""
    position, groups = 0, found.re.groups
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
