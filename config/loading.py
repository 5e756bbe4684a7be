"""Settings from a TOML file, the environment and the command line; the later one wins."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from ..protocol.errors import InvalidConfig
from .broker import NAMES, BrokerSettings, build, resolve
from .setting import OptionValue

PREFIX: Final = "HOROLOG_"
OTHER_VARIABLES: Final = frozenset(
    (
        *("SERVER", "PROFILE", "CA", "CLIENT_CERT", "CLIENT_KEY", "CLIENT_KEY_PASSWORD_FILE"),
        *("USER", "PASSWORD_FILE", "TOKEN_FILE", "MECHANISM"),
        *("REQUIRE", "KERNEL"),
    )
)
"""Variables with our prefix that are not settings: what clients connect to and how, what tests
require, which form of the kernel runs."""

_MISSPELT: Final = 0.88
"""How alike (0 to 1) an unknown variable must be to a known one to be taken for a misspelling.
Below it a variable belongs to other programs: Kubernetes sets HOROLOG_SERVICE_HOST and the like
for a service of this name."""

_KUBERNETES: Final = re.compile(r"SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?")


def load(
    config_file: Path | None, environ: Mapping[str, str], overrides: Sequence[str]
) -> BrokerSettings:
    """The broker's settings. `overrides` are NAME=VALUE texts from the command line.

    Raises `InvalidConfig` naming the file, the variable or the option at fault.
    """
    values = resolve(_from_file(config_file)) if config_file is not None else {}
    values |= resolve(_from_environment(environ))
    values |= resolve(_from_options(overrides))
    return build(values)


def environment_name(name: str) -> str:
    """The environment variable of a setting: `retention.ms` is `HOROLOG_RETENTION_MS`."""
    return PREFIX + name.replace(".", "_").upper()


def ignored_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables that look like settings and are none; those that Kubernetes sets are left out."""
    known = {environment_name(name) for name in (*NAMES, *OTHER_VARIABLES)}
    return sorted(
        variable
        for variable in environ
        if variable.startswith(PREFIX)
        and variable not in known
        and not _KUBERNETES.fullmatch(variable.removeprefix(PREFIX))
    )


def _from_file(path: Path) -> Iterator[OptionValue]:
    import tomllib  # most brokers start without a file

    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidConfig(f"{path} is not TOML: {error}") from None
    for name, value in _flattened(tables, ""):
        yield OptionValue(name, value, is_text=False, origin=str(path))


def _flattened(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    """`[retention]` with `ms = 1` and the quoted key `"retention.ms" = 1` are the same."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _from_environment(environ: Mapping[str, str]) -> Iterator[OptionValue]:
    names = {environment_name(name).removeprefix(PREFIX): name for name in NAMES}
    for variable, text in environ.items():
        rest = variable.removeprefix(PREFIX)
        if rest == variable or rest in OTHER_VARIABLES:
            continue
        if rest in names:
            yield OptionValue(names[rest], text, origin=variable)
            continue
        close = get_close_matches(rest, (*names, *OTHER_VARIABLES), 1, _MISSPELT)
        if close:
            raise InvalidConfig(f"{variable} is not a setting; did you mean {PREFIX}{close[0]}?")


def _from_options(overrides: Sequence[str]) -> Iterator[OptionValue]:
    last: dict[str, OptionValue] = {}
    for option in overrides:
        name, equals, text = option.partition("=")
        if not equals:
            raise InvalidConfig(f"--set {option}: write NAME=VALUE")
        last[name] = OptionValue(name.strip(), text, origin=f"--set {option}")
    yield from last.values()
