"""Finding settings by any of their names, and settling several names of one setting."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple

from ..protocol.errors import InvalidConfig
from .setting import Scope, Setting, Value

_CLOSE: Final = 0.75
"""How alike (0 to 1) an unknown name must be to a known one to be suggested."""


class OptionValue(NamedTuple):
    """A setting as someone gave it: `value` is text, or typed when it comes from a TOML file."""

    name: str
    value: object
    is_text: bool = True
    origin: str = ""


class Names:
    """Settings by name and alias. `elsewhere` are names that exist but not here: name -> why."""

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
        """The setting that `name` is a name of; else `InvalidConfig`, with a suggestion."""
        setting = self._by_name.get(name)
        if setting is not None:
            return setting
        if name in self._elsewhere:
            raise InvalidConfig(f"{name} {self._elsewhere[name]}")
        suggestion = self.closest(name)
        hint = f"; did you mean {suggestion}?" if suggestion else ""
        raise InvalidConfig(f"{name[:100]!r} is not a setting{hint}")

    def closest(self, name: str) -> str | None:
        """The known name that an unknown one looks most like."""
        return next(iter(get_close_matches(name[:100], self._by_name, 1, _CLOSE)), None)

    def resolve(self, given: Iterable[OptionValue], at: Scope) -> dict[str, Value]:
        """Checked values by canonical name. Raises `InvalidConfig` naming the origin.

        Of several names of one setting the one in the smallest unit counts (ms over minutes over
        hours); two of the same unit must agree.
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
