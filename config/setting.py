"""One setting: its names, what it may be, and the text that refuses everything else; how the tables
declare one, and how one is found by any of its names.

Lengths of time, sizes and rates are read as a person writes them: `7d`, `90s`, `1GiB`, `10MB/s`.
`KiB`, `MiB`, `GiB` and `TiB` are powers of 1024; `KB`, `MB`, `GB` and `TB` powers of 1000.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, field
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ..protocol.errors import InvalidConfig
from ..times import TimeError, format_length, parse_length
from ..values import frozen_class
from .address import Scheme, host_names, listen_addresses, without_login

TIME_UNITS_MS: Final = MappingProxyType(
    {"ms": 1, "s": 1000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}
)
"""Units of settings that are lengths of time, in milliseconds."""

SIZE: Final = "bytes"
RATE: Final = "bytes/s"

SIZES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "B": 1,
        **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
        **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
        "kB": 1000,
    }
)
_AMOUNT: Final = re.compile(r"(\d{1,19})(?:\.(\d{1,9}))? ?([A-Za-z]{1,3})", re.ASCII)
_LONGEST: Final = 40
_LONGEST_MS: Final = 10**17
"""Longest time that is shown in days: three million years."""

_CLOSE: Final = 0.75
"""Minimum similarity (0 to 1) at which a known name is suggested for an unknown one."""

COUNTS_MAX_NAMES: Final = 1000
COUNTS_MAX: Final = 1_000_000
COUNTS_FORM: Final = f"NAME:COUNT by commas, each count from 0 to {COUNTS_MAX}"

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

Value = int | float | bool | str

_WHOLE_NUMBER: Final = re.compile(r"-?\d+", re.ASCII)
_RATIO: Final = re.compile(r"\d+\.?\d*|\.\d+", re.ASCII)
_FILE_MODE: Final = re.compile(r"0?6[046][04]", re.ASCII)
_LONGEST_SHOWN: Final = 80
_LONGEST_TEXT: Final = 4096
"""Longest value of a text setting: Linux's own limit for a path."""


class UnitError(ValueError):
    """The amount has a unit, and cannot be expressed in whole units of the setting. The text is the
    end of a sentence about it."""


def parse_amount(text: str, unit: str) -> int | None:
    """Return what `text` means in `unit`: a unit of `TIME_UNITS_MS`, `SIZE` or `RATE`. None if the
    text has no unit, or the setting's unit is another. Raises `UnitError`."""
    if len(text) > _LONGEST:
        return None
    if unit in TIME_UNITS_MS:
        return _time(text, TIME_UNITS_MS[unit], unit)
    if unit == SIZE:
        return _size(text)
    return _size(text.removesuffix("/s")) if unit == RATE else None


def format_amount(number: int, unit: str) -> str:
    """Return the shortest text that `parse_amount` reads as exactly `number`; the number itself if
    it is not positive, or has no whole larger unit."""
    if number <= 0:
        return str(number)
    if unit in TIME_UNITS_MS:
        length_ms = number * TIME_UNITS_MS[unit]
        return format_length(length_ms) if length_ms <= _LONGEST_MS else str(number)
    if unit not in (SIZE, RATE):
        return str(number)
    behind = "/s" if unit == RATE else ""
    whole = [
        f"{number // size}{name}{behind}"
        for name, size in SIZES.items()
        if size > 1 and name != "kB" and number % size == 0
    ]
    return min([*whole, str(number)], key=len)


def form_of(unit: str) -> str:
    """Return how an amount in `unit` may be written besides as a number; empty for other units."""
    if unit in TIME_UNITS_MS:
        return "with a unit: 90s, 12h, 7d"
    return {SIZE: "with a unit: 512KiB, 1GiB, 10MB", RATE: "with a unit: 1MiB/s, 10MB/s"}.get(
        unit, ""
    )


def _time(text: str, unit_ms: int, unit: str) -> int | None:
    try:
        length_ms = parse_length(text)
    except TimeError:
        return None
    number, rest = divmod(length_ms, unit_ms)
    if rest:
        raise UnitError(f"{text} is not a whole number of {unit}")
    return number


def _size(text: str) -> int | None:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        return None
    size = SIZES.get(match[3])
    if size is None:
        letter = match[3][0].upper()
        if letter in "KMGT":
            raise UnitError(f"{match[3]} could be {letter}iB or {letter}B")
        return None
    fraction: str = match[2] or ""
    digits: str = match[1] + fraction
    scale: int = 10 ** len(fraction)
    number, rest = divmod(int(digits) * size, scale)
    if rest:
        raise UnitError(f"{text} is not a whole number of bytes")
    return number


class Kind(StrEnum):
    """The kind of value that a setting has."""

    INTEGER = "integer"
    RATIO = "ratio"
    """A number from 0 to 1."""
    BOOLEAN = "boolean"
    CHOICE = "choice"
    ADDRESS = "address"
    HOSTS = "hosts"
    PATH = "path"
    FILE_MODE = "file mode"
    CHOICES = "choices"
    PRINCIPALS = "principals"
    TEXT = "text"


class Scope(StrEnum):
    """Where a setting applies. A topic setting may also be given for the whole broker."""

    TOPIC = "topic"
    BROKER = "broker"


@frozen_class
class Setting:
    """The declaration of a setting. Parsing, refusals and documentation derive from it.

    `aliases` are other names of the setting with the same unit. `scaled` are names in a larger
    unit, with the factor to this setting's unit. If several names are given together, the one with
    the smallest unit is used. Integers have inclusive bounds. With `negative_is_off`, any negative
    number means -1, no limit. `no_limit` is the value that readers see as `None`. `choices` are the
    allowed values of a choice, the allowed values of a boolean if only one is, and words allowed in
    place of an address. With `part_that_counts`, only that part of a choice has to be one of them.
    A setting of kind `CHOICES` takes several of them, separated by commas, at least `minimum`.
    Addresses may be several too. `reads` raises `ValueError` for a text that does not have this
    `form`.
    """

    _: KW_ONLY

    name: str
    scope: Scope
    kind: Kind
    default: Value
    doc: str
    unit: str = ""
    minimum: int = 0
    maximum: int = INT64_MAX
    negative_is_off: bool = False
    zero_in_broker: bool = True
    no_limit: int | None = None
    choices: tuple[str, ...] = ()
    plaintext_says_nothing: bool = False
    """Whether PLAINTEXT:// before the only address is removed from the value."""
    one_address: bool = False
    """Whether only one address is allowed."""
    part_that_counts: Callable[[str], str] | None = None
    any_case_in_broker: bool = False
    why_not: str = ""
    reads: Callable[[str], object] | None = None
    form: str = ""
    aliases: tuple[str, ...] = ()
    scaled: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def attribute(self) -> str:
        """Name of the field for this setting in the settings dataclasses."""
        return self.name.replace(".", "_")

    @property
    def kafka_name(self) -> str:
        """The name of the setting in Kafka's broker, if Kafka has it; otherwise its own name."""
        return self.aliases[-1] if self.aliases else self.name

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Its name, and the name in Kafka's topics if that differs."""
        return (self.name, *self.aliases[:-1])

    def names(self) -> Iterator[str]:
        """Yield every name by which the setting can be given, the canonical one first."""
        yield self.name
        yield from self.aliases
        yield from self.scaled

    def factor(self, name: str) -> int:
        """Return how many of this setting's units make one unit of `name`."""
        return self.scaled.get(name, 1)

    def parse(self, text: str, *, name: str = "", at: Scope | None = None) -> Value:
        """Return the value that `text` means. Raises `InvalidConfig`.

        `name` is the name by which it was given, `at` where: for one topic or for the whole broker.
        """
        if self.kind is Kind.INTEGER:
            if not _WHOLE_NUMBER.fullmatch(text) or len(text) > _LONGEST_SHOWN:
                return self._check_amount(text, name, at)
            return self.check(int(text), name=name, at=at)
        if self.kind is Kind.RATIO:
            if not _RATIO.fullmatch(text) or len(text) > _LONGEST_SHOWN:
                raise self._refusal(text, name, at)
            return self.check(float(text), name=name, at=at)
        if self.kind is Kind.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise self._refusal(text, name, at)
            return self.check(text.lower() == "true", name=name, at=at)
        return self.check(text, name=name, at=at)

    def check(self, value: object, *, name: str = "", at: Scope | None = None) -> Value:  # noqa: C901, PLR0912 - the checks of one value, in order
        """Return `value`, already of this setting's type, if it is allowed. Raises `InvalidConfig`.

        Types are not converted: `true`, `1.0` and `"1"` are not the number 1. A text with a unit,
        such as `"7d"`, is a number.
        """
        match self.kind:
            case Kind.INTEGER if type(value) is int:
                return self._check_integer(value, name, at)
            case Kind.INTEGER if isinstance(value, str):
                return self._check_amount(value, name, at)
            case Kind.RATIO if isinstance(value, int | float) and not isinstance(value, bool):
                if 0 <= value <= 1:
                    return float(value)
            case Kind.BOOLEAN if type(value) is bool:
                if not self.choices or self.format(value) in self.choices:
                    return value
            case Kind.CHOICE if isinstance(value, str):
                folded = self.any_case_in_broker and self._scope(at) is Scope.BROKER
                choice = value.lower() if folded else value
                counts = self.part_that_counts
                if (counts(choice) if counts else choice) in self.choices:
                    return choice
            case Kind.ADDRESS if isinstance(value, str):
                return self._check_address(value, name, at)
            case Kind.HOSTS if isinstance(value, str):
                names = host_names(value)
                if names is not None and len(value) <= _LONGEST_TEXT:
                    return ",".join(names)
            case Kind.CHOICES if isinstance(value, str):
                return self._check_choices(value, name, at)
            case Kind.PRINCIPALS if isinstance(value, str):
                principals = _principals(value)
                if principals is not None and len(value) <= _LONGEST_TEXT:
                    return ";".join(principals)
            case Kind.TEXT if isinstance(value, str):
                return self._check_text(value, name, at)
            case Kind.PATH if isinstance(value, str):
                if value in self.choices:
                    return value
                if 0 < len(value) <= _LONGEST_TEXT and "\0" not in value:
                    return value
            case Kind.FILE_MODE if isinstance(value, str):
                if _FILE_MODE.fullmatch(value):
                    return f"{int(value, 8):04o}"
        raise self._refusal(value, name, at)

    def format(self, value: Value) -> str:
        """Return the text form that `parse` reads."""
        return str(value).lower() if isinstance(value, bool) else str(value)

    def amount(self, text: str, name: str = "") -> int | None:
        """Return what an amount with a unit means (`7d`), in the unit of `name`; None for a text
        without a unit. Raises `UnitError`."""
        return parse_amount(text, self._unit(name)) if self.kind is Kind.INTEGER else None

    def shown(self, text: str) -> str:
        """Return a value, in the text form of `format`, as a person reads it: `7d`, `1GiB`."""
        if self.kind is not Kind.INTEGER or not _WHOLE_NUMBER.fullmatch(text):
            return text
        number = int(text)
        if number == self.no_limit or (number < 0 and self.negative_is_off):
            return "no limit"
        return "no limit" if number == INT64_MAX else format_amount(number, self.unit)

    def allowed(self, name: str = "", at: Scope | None = None) -> str:
        """Return the allowed values, as the end of "it must be ...", in the unit of `name`."""
        match self.kind:
            case Kind.RATIO:
                return "a number from 0 to 1, such as 0.5"
            case Kind.BOOLEAN | Kind.CHOICE:
                return " or ".join(self.choices or ("true", "false"))
            case Kind.ADDRESS:
                return " or ".join((self._address_form(), *self.choices))
            case Kind.CHOICES:
                return f"any of {', '.join(self.choices)}, separated by commas"
            case Kind.HOSTS:
                return f"host names separated by commas, at most {_LONGEST_TEXT} characters"
            case Kind.PRINCIPALS:
                return (
                    "principals such as User:alice, separated by semicolons, at most "
                    f"{_LONGEST_TEXT} characters"
                )
            case Kind.TEXT:
                return f"{self.form}, at most {_LONGEST_TEXT} characters"
            case Kind.PATH:
                empty = ", or empty" if "" in self.choices else ""
                return f"a path of 1 to {_LONGEST_TEXT} characters{empty}"
            case Kind.FILE_MODE:
                return (
                    "permissions in octal, as text: 06 for the owner, then 0, 4 or 6 for the "
                    'group, then 0 or 4 for all others, such as "0640"'
                )
        factor = self.factor(name)
        minimum = -(-self._minimum(at) // factor)
        unit = self._unit(name)
        bounds = f"a whole number{f' of {unit}' if unit else ''} from {minimum}"
        bounds += f" to {self.maximum // factor}"
        bounds += ", or a negative one for no limit" if self.negative_is_off else ""
        return bounds + (f", or {form}" if (form := form_of(unit)) else "")

    def _unit(self, name: str) -> str:
        return name.rpartition(".")[2] if self.factor(name) > 1 else self.unit

    def _scope(self, at: Scope | None) -> Scope:
        return self.scope if at is None else at

    def _minimum(self, at: Scope | None) -> int:
        if self._scope(at) is Scope.BROKER and not self.zero_in_broker:
            return max(self.minimum, 1)
        return self.minimum

    def _check_amount(self, text: str, name: str, at: Scope | None) -> int:
        """Check a text that is not a plain number: an amount with a unit."""
        try:
            number = self.amount(text, name)
        except UnitError as error:
            raise self._refusal(text, name, at, f" Here {error}.") from None
        if number is None:
            raise self._refusal(text, name, at)
        if not self._minimum(at) <= number * self.factor(name) <= self.maximum:
            raise self._refusal(text, name, at)
        return number * self.factor(name)

    def _check_integer(self, number: int, name: str, at: Scope | None) -> int:
        if number < 0 and self.negative_is_off:
            return -1
        value = number * self.factor(name)
        if not self._minimum(at) <= value <= self.maximum:
            raise self._refusal(number, name, at)
        return value

    def _address_form(self) -> str:
        schemes = ", ".join(each for each in Scheme if each)
        if self.one_address:
            return f"one HOST:PORT, perhaps behind {schemes}"
        return f"HOST:PORT, or several separated by commas, each perhaps behind {schemes}"

    def _check_address(self, text: str, name: str, at: Scope | None) -> str:
        if text in self.choices:
            return text
        try:
            found = listen_addresses(text)
        except ValueError:
            raise self._refusal(text, name, at) from None
        if not found or (self.one_address and len(found) > 1):
            raise self._refusal(text, name, at)
        if self.plaintext_says_nothing and len(found) == 1 and found[0].scheme is Scheme.PLAINTEXT:
            return found[0].address
        return ",".join(map(str, found))

    def _check_choices(self, text: str, name: str, at: Scope | None) -> str:
        chosen = [part.strip() for part in text.split(",")] if text.strip() else []
        by_name = {choice.casefold(): choice for choice in self.choices}
        found = [by_name.get(each.casefold()) for each in chosen]
        if None in found or len(set(found)) < len(found) or len(found) < self.minimum:
            raise self._refusal(text, name, at)
        return ",".join(filter(None, found))

    def _check_text(self, text: str, name: str, at: Scope | None) -> str:
        if len(text) > _LONGEST_TEXT or not all(map(str.isprintable, text)):
            raise self._refusal(text, name, at)
        assert self.reads is not None
        try:
            self.reads(text)
        except ValueError as error:
            raise self._refusal(text, name, at, f" Here {error}.") from None
        return text

    def _refusal(self, value: object, name: str, at: Scope | None, here: str = "") -> InvalidConfig:
        label = name or self.name
        if label != self.name:
            label += f" (another name of {self.name})"
        if isinstance(value, str) and (self.kind is Kind.ADDRESS or "://" in value):
            value = without_login(value)
        why = f" {self.why_not}" if self.why_not else ""
        allowed = self.allowed(name, at)
        return InvalidConfig(
            f"{label} = {_shown(value)} is refused: it must be {allowed}.{why}{here}"
        )


class OptionValue(NamedTuple):
    """A setting as given by the user: `value` is text, or has a type if it comes
    from a TOML file."""

    name: str
    value: object
    is_text: bool = True
    origin: str = ""


class Names:
    """Settings by name and alias. `elsewhere` are names not allowed here: name -> reason."""

    def __init__(self, settings: Iterable[Setting], elsewhere: Mapping[str, str]) -> None:
        self._by_name: dict[str, Setting] = {}
        self._elsewhere = elsewhere
        for setting in settings:
            for name in setting.names():
                if name in self._by_name or name in elsewhere:
                    raise TypeError(f"setting name {name} is declared twice")
                self._by_name[name] = setting

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def find(self, name: str) -> Setting:
        """Return the setting with this name or alias. Raises `InvalidConfig`, with a suggestion."""
        setting = self._by_name.get(name)
        if setting is not None:
            return setting
        if name in self._elsewhere:
            raise InvalidConfig(f"{name} {self._elsewhere[name]}")
        suggestion = self.closest(name)
        hint = f"; did you mean {suggestion}?" if suggestion else ""
        raise InvalidConfig(f"{name[:100]!r} is not a setting{hint}")

    def closest(self, name: str) -> str | None:
        """Return the known name that is most similar to an unknown one."""
        return next(iter(get_close_matches(name[:100], self._by_name, 1, _CLOSE)), None)

    def resolve(self, given: Iterable[OptionValue], at: Scope) -> dict[str, Value]:
        """Return checked values by canonical name. Raises `InvalidConfig` that names the origin.

        Of several names of one setting, the one in the smallest unit is used (ms before minutes
        before hours). Two names in the same unit must agree.
        """
        chosen: dict[str, tuple[int, str, Value]] = {}
        for name, raw, is_text, origin in given:
            try:
                setting = self.find(name)
                value = (
                    setting.parse(str(raw), name=name, at=at)
                    if is_text
                    else setting.check(raw, name=name, at=at)
                )
                factor = setting.factor(name)
                before = chosen.get(setting.name)
                if before is not None and before[0] == factor and before[2] != value:
                    raise InvalidConfig(
                        f"{name} = {value} contradicts {before[1]} = {before[2]}: they are two "
                        "names of one setting"
                    )
            except InvalidConfig as error:
                raise InvalidConfig(
                    f"{origin}: {error.message}" if origin else error.message
                ) from None
            if before is None or factor < before[0]:
                chosen[setting.name] = (factor, name, value)
        return {canonical: value for canonical, (_, _, value) in chosen.items()}


def _principals(text: str) -> list[str] | None:
    """Return the principals, each once; `None` if the text has anything else."""
    found = [part.strip() for part in text.split(";") if part.strip()]
    if not all(each.startswith("User:") and each != "User:" for each in found):
        return None
    return list(dict.fromkeys(found))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... (cut)"


def setting(name: str, kind: Kind, default: Value, doc: str, **more: Any) -> Setting:
    """Return a setting of the broker. `more` are further fields of `Setting`."""
    return Setting(name=name, scope=Scope.BROKER, kind=kind, default=default, doc=doc, **more)


def integer(name: str, default: int, unit: str, doc: str, **more: Any) -> Setting:
    """Return a setting for a whole number, at least 1 unless `more` says otherwise."""
    return setting(name, Kind.INTEGER, default, doc, unit=unit, **{"minimum": 1} | more)


def counts(text: str) -> Mapping[str, int]:
    """Return the numbers by name. The number follows the last colon, because a name may contain
    colons. An IPv6 address may be in brackets.

    Raises `ValueError` that says which part is wrong.
    """
    found: dict[str, int] = {}
    for part in text.split(",") if text.strip() else ():
        name, colon, number = part.strip().rpartition(":")
        name = name.strip().removeprefix("[").removesuffix("]")
        number = number.strip()
        if not (colon and name and number.isascii() and number.isdecimal() and len(number) < 10):
            raise ValueError(f"{part.strip()[:100]!r} is not NAME:COUNT")
        if int(number) > COUNTS_MAX:
            raise ValueError(f"{number} is more than {COUNTS_MAX}")
        if name in found:
            raise ValueError(f"{name[:100]!r} is there twice")
        found[name] = int(number)
    if len(found) > COUNTS_MAX_NAMES:
        raise ValueError(f"there are more than {COUNTS_MAX_NAMES} names")
    return found
