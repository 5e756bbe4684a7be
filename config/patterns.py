"""Regular expressions whose cost is known before they are tried: length of the pattern times length
of the text.

Those of the standard library may take exponential time. These are a part of Java's and Python's:
letters, `.`, classes, groups, `|`, repetitions, `^`, `$`, and `(?i)` at the begin; nothing that
looks back or ahead. What matches, and what a group has, is the same.

A pattern becomes a list of steps. Who tries it never takes the same step at the same place of the
text twice: it has failed there.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

MAX_STEPS: Final = 2000
MAX_REPEAT: Final = 1000
_MAX_DEPTH: Final = 50

_GROUP: Final = re.compile(r"\((?:\?(?::|<[A-Za-z][A-Za-z0-9]*>))?")
_REPEAT: Final = re.compile(r"([*+?]|\{(\d{1,4})(?:(,)(\d{1,4})?)?\})(\??)")
_CLASS: Final = re.compile(r"\[\^?(?:\\.|[^\]\\])+\]")
_NO_CLASS: Final = re.compile(r"(?<!\\)(?:\[.*\[|&&|--|~~|\|\|)|\\[pPbBQEk0-9]")
_NO_SINGLE: Final = "*+?{"

Fits = Callable[[str], object]
"""Whether a letter is one of those that are meant."""


class _Do(Enum):
    LETTER = auto()
    EITHER = auto()
    GO = auto()
    NOTE = auto()
    BEGIN = auto()
    END = auto()


class _Step(NamedTuple):
    do: _Do
    first: int = 0
    """Where to go on; of `NOTE`, which place is noted."""
    second: int = 0
    """Where to go on when that has failed."""
    fits: Fits | None = None


class Pattern:
    """A compiled pattern; `groups` is how many groups it has that can be asked for."""

    def __init__(self, text: str) -> None:
        """Raises `ValueError` saying what is wrong."""
        compiler = _Compiler(text)
        self._steps: Sequence[_Step] = compiler.steps
        self.groups = compiler.groups

    def __len__(self) -> int:
        """How many steps it has."""
        return len(self._steps)

    def fullmatch(self, text: str) -> Sequence[str | None] | None:  # noqa: C901 - the kinds of steps
        """What the groups have, the whole text first; `None` when it does not match."""
        steps, places = self._steps, len(text) + 1
        tried = bytearray((len(steps) + 1) * places)
        noted: list[int | None] = [None] * (2 * self.groups + 2)
        # Where else to go on; or, with a negative number, what was noted before.
        others: list[tuple[int, int | None]] = [(0, 0)]
        while others:
            at, place = others.pop()
            if at < 0:
                noted[~at] = place
                continue
            assert place is not None
            while at >= 0 and not tried[at * places + place]:
                tried[at * places + place] = 1
                if at == len(steps):
                    if place == len(text):
                        return tuple(_groups(text, noted))
                    break
                do, first, second, fits = steps[at]
                at += 1
                match do:
                    case _Do.LETTER:
                        assert fits is not None
                        if place == len(text) or not fits(text[place]):
                            break
                        place += 1
                    case _Do.EITHER:
                        others.append((second, place))
                        at = first
                    case _Do.GO:
                        at = first
                    case _Do.NOTE:
                        others.append((~first, noted[first]))
                        noted[first] = place
                    case _Do.BEGIN if place:
                        break
                    case _Do.END if place < len(text):
                        break
        return None


def _groups(text: str, noted: Sequence[int | None]) -> Iterator[str | None]:
    yield text
    for begin, end in zip(noted[2::2], noted[3::2], strict=True):
        yield None if begin is None or end is None else text[begin:end]


class _Compiler:
    """Makes steps of a pattern, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._flags = re.ASCII
        self.groups = 0
        self.steps: list[_Step] = []
        if text.startswith("(?i)"):
            self._flags |= re.IGNORECASE
            self._at = 4
        self._alternatives()
        if self._at < len(text):
            raise ValueError("there is a ) without its (")

    def _alternatives(self) -> None:
        begin = len(self.steps)
        self._sequence()
        ends = []
        while self._at < len(self._text) and self._text[self._at] == "|":
            self._at += 1
            # What was made stands behind a choice now, and goes on behind the last one.
            self._insert(begin, _Step(_Do.EITHER, begin + 1, len(self.steps) + 2))
            ends.append(len(self.steps))
            self._add(_Step(_Do.GO))
            begin = len(self.steps)
            self._sequence()
        for end in ends:
            self.steps[end] = _Step(_Do.GO, len(self.steps))

    def _sequence(self) -> None:
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            begin = len(self.steps)
            self._one()
            repeat = _REPEAT.match(self._text, self._at)
            if repeat is not None:
                self._at = repeat.end()
                if self._text[self._at : self._at + 1] in ("*", "+", "?", "{"):
                    raise ValueError("of what is repeated something is repeated")
                self._repeated(begin, repeat)

    def _one(self) -> None:
        char = self._text[self._at]
        if char == "(":
            self._group()
        elif char in "^$":
            self._at += 1
            self._add(_Step(_Do.BEGIN if char == "^" else _Do.END))
        else:
            self._add(_Step(_Do.LETTER, fits=self._fits()))

    def _group(self) -> None:
        found = _GROUP.match(self._text, self._at)
        assert found is not None
        if self._text.startswith("(?", self._at) and len(found[0]) == 1:
            raise ValueError("of groups with (? only (?: and (?<name> may be")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"groups are in more than {_MAX_DEPTH} others")
        self._at = found.end()
        noted = not found[0].endswith(":")
        if noted:
            self.groups += 1
            number = self.groups
            self._add(_Step(_Do.NOTE, 2 * number))
        self._alternatives()
        if noted:
            self._add(_Step(_Do.NOTE, 2 * number + 1))
        if self._at >= len(self._text):
            raise ValueError("there is a ( without its )")
        self._at += 1
        self._depth -= 1

    def _fits(self) -> Fits:
        text, at = self._text, self._at
        char = text[at]
        if char == "[":
            found = _CLASS.match(text, at)
            if found is None or _NO_CLASS.search(found[0][1:]):
                raise ValueError("a class in [] has no end, or something in it that is not taken")
            part = found[0]
        elif char == "\\":
            part = text[at : at + 2]
            if len(part) < 2 or (part[1].isalnum() and part[1] not in "dDwWsS"):
                raise ValueError(f"{part!r} is not taken")
        elif char in _NO_SINGLE:
            raise ValueError(f"there is nothing that {char!r} could repeat")
        else:
            part = char if char == "." else re.escape(char)
        self._at += len(part) if char in "[\\" else 1
        try:
            return re.compile(part, self._flags).match
        except re.error as error:
            raise ValueError(str(error)) from None

    def _repeated(self, begin: int, repeat: re.Match[str]) -> None:
        sign, low, comma, high, lazy = repeat.groups()
        least = {"*": 0, "+": 1, "?": 0}.get(sign, int(low or 0))
        most: int | None = {"*": None, "+": None, "?": 1}.get(sign, least)
        if comma:
            most = int(high) if high else None
        if least > MAX_REPEAT or (most or 0) > MAX_REPEAT or (most is not None and most < least):
            raise ValueError(f"{repeat[0]} is not from 0 to {MAX_REPEAT}, the smaller one first")
        body = self.steps[begin:]
        del self.steps[begin:]
        for _ in range(least):
            self._copy(body, begin)
        if most is None:
            at = len(self.steps)
            end = at + len(body) + 2
            self._add(_either(at + 1, end, bool(lazy)))
            self._copy(body, begin)
            self._add(_Step(_Do.GO, at))
            return
        left = most - least
        end = len(self.steps) + left * (len(body) + 1)
        for _ in range(left):
            self._add(_either(len(self.steps) + 1, end, bool(lazy)))
            self._copy(body, begin)

    def _copy(self, body: Sequence[_Step], begin: int) -> None:
        """Add steps that were made to begin at `begin`."""
        by = len(self.steps) - begin
        for step in body:
            self._add(_moved(step, by))

    def _insert(self, at: int, step: _Step) -> None:
        moved = [_moved(each, 1) for each in self.steps[at:]]
        self.steps[at:] = [step, *moved]

    def _add(self, step: _Step) -> None:
        if len(self.steps) >= MAX_STEPS:
            raise ValueError(f"it has more than {MAX_STEPS} steps: letters and repetitions")
        self.steps.append(step)


def _either(body: int, end: int, lazy: bool) -> _Step:
    return _Step(_Do.EITHER, end, body) if lazy else _Step(_Do.EITHER, body, end)


def _moved(step: _Step, by: int) -> _Step:
    if step.do in (_Do.EITHER, _Do.GO):
        return step._replace(first=step.first + by, second=step.second + by)
    return step
