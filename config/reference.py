"""Writes `docs/settings.md` from the tables: `python -m horolog.config.reference`."""

import sys
from collections.abc import Iterator, Mapping

from .broker import environment_name
from .broker_table import BROKER_NAMES_NOT_OFFERED, BROKER_SETTINGS
from .setting import INT32_MAX, INT64_MAX, Kind, Setting
from .topic_table import TOPIC_NAMES_NOT_OFFERED, TOPIC_SETTINGS

_INTRODUCTION = """\
# Settings

Generated from the tables in `config/` by `make docs`.

A setting is given in a TOML file (`horolog serve --config FILE`), in the environment, or on the
command line (`--set NAME=VALUE`); the later of these wins. In TOML, `"retention.ms" = 1000` and
`ms = 1000` under `[retention]` are the same. The environment variable of a setting is its name in
upper case after `HOROLOG_`, with dots as underscores: `retention.ms` is `HOROLOG_RETENTION_MS`.

A topic setting given to the broker holds for every topic that has no value of its own; a topic's
own values are set by `horolog topic create|alter NAME --set NAME=VALUE` and count from the next
append or maintenance pass on. A value that is not allowed is refused with the setting's name and
its range, and so is an unknown name. An unknown `HOROLOG_` variable is refused when it looks like
a misspelt setting, else ignored with a warning in the log (`variables_ignored`), because other
programs set variables with this prefix too.

Lengths of time and sizes may have a unit: `7d`, `90s`, `1h30m`, `1GiB`, `10MB`; in TOML they are
then texts (`"retention.ms" = "7d"`). `KiB`, `MiB`, `GiB` and `TiB` are powers of 1024, `KB`, `MB`,
`GB` and `TB` powers of 1000. Clients of Kafka's protocol get plain numbers.

Other names are Kafka's. Of several names of one setting the one in the smallest unit counts (ms
over minutes over hours); two in the same unit must agree.
"""


def lines() -> Iterator[str]:
    """Yield the lines of the page."""
    yield from _INTRODUCTION.splitlines()
    yield from _section("Topic settings", TOPIC_SETTINGS)
    yield from _section("Broker settings", BROKER_SETTINGS)
    yield from ("", "## Kafka settings that do not exist here", "")
    for name, why in {**TOPIC_NAMES_NOT_OFFERED, **BROKER_NAMES_NOT_OFFERED}.items():
        yield f"- `{name}` {why}."


def _section(title: str, settings: Mapping[str, Setting]) -> Iterator[str]:
    yield from ("", f"## {title}")
    for setting in settings.values():
        yield from ("", f"### `{setting.name}`", "", setting.doc, "")
        yield f"- Default: {_default(setting)}"
        yield f"- Allowed: {_readable(setting.allowed())}"
        if not setting.zero_in_broker:
            yield "- For the whole broker, 0 is refused."
        others = [f"`{name}`" for name in setting.names() if name != setting.name]
        if others:
            yield f"- Other names: {', '.join(others)}"
        yield f"- Environment: `{environment_name(setting.name)}`"


def _default(setting: Setting) -> str:
    if setting.no_limit is not None and setting.default == setting.no_limit:
        return "no limit"
    if setting.default == "":
        return "none"
    text = f"`{setting.format(setting.default)}`"
    if setting.kind is not Kind.INTEGER:
        return text
    if setting.default == INT64_MAX:
        return f"{text} (never)"
    return text + (f" {setting.unit}" if setting.unit else "") + _with_unit(setting)


def _with_unit(setting: Setting) -> str:
    shown = setting.shown(str(setting.default))
    return "" if shown == str(setting.default) else f" ({shown})"


def _readable(allowed: str) -> str:
    return allowed.replace(str(INT64_MAX), "2^63 - 1").replace(str(INT32_MAX), "2^31 - 1")


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
