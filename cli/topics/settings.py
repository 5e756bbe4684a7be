"""The option `--set` for settings of a topic, with units, and its shell completion."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from ...config.setting import Kind, Setting
from ...config.topic import TOPIC_SETTINGS, in_numbers
from ..options import name_values


def complete_setting(incomplete: str) -> list[str]:
    """Return what may follow in `--set` for a topic."""
    return complete_assignment(TOPIC_SETTINGS, incomplete)


def complete_assignment(settings: Mapping[str, Setting], incomplete: str) -> list[str]:
    """Return what may follow in `NAME=VALUE`: names of settings, each with `=`, or values to choose
    from."""
    name, equals, _ = incomplete.partition("=")
    if not equals:
        return [f"{each}=" for each in settings if each.startswith(incomplete)]
    setting = settings.get(name)
    found = [] if setting is None else _values(setting)
    return [text for value in found if (text := f"{name}={value}").startswith(incomplete)]


def complete_setting_name(incomplete: str) -> list[str]:
    """Return the names of topic settings that begin with `incomplete`."""
    return [name for name in TOPIC_SETTINGS if name.startswith(incomplete)]


def _values(setting: Setting) -> tuple[str, ...]:
    """Return values of a setting to choose from: all that are allowed, else examples."""
    if setting.kind is Kind.BOOLEAN:
        return setting.choices or ("true", "false")
    examples = {"ms": ("1h", "1d", "7d"), "bytes": ("1MiB", "64MiB", "1GiB")}
    return setting.choices or examples.get(setting.unit, ())


Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        autocompletion=complete_setting,
        help="A setting of the topic, such as retention.ms=7d or segment.bytes=1GiB; may be "
        "repeated.",
    ),
]


def given_settings(options: Sequence[str] | None) -> dict[str, str]:
    """Parse the settings in `--set NAME=VALUE`; amounts with a unit (`7d`, `1GiB`) become numbers.
    Raises WrongUsage, InvalidConfig."""
    return in_numbers(name_values(options or ()))
