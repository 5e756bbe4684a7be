"""Profiles: named settings to reach a broker, in the user's `horolog/config.toml`.

    profile = "prod"                    # the one in use

    [profiles.prod]
    server = "tls://broker.example:7070"
    user = "alice"
    password_command = ["secret-tool", "lookup", "horolog", "alice"]

The file contains no secrets, only where to find them.
"""

import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...config.address import check_no_login
from ..errors import WrongUsage
from .options import profiles_path

Layer = Mapping[str, str | tuple[str, ...]]
"""Settings of one source (options, environment or profile), by their names in a profile."""

TEXTS: Final = (
    *("server", "ca", "client_cert", "client_key", "client_key_password_file"),
    *("user", "password_file", "token_file", "mechanism"),
)
COMMANDS: Final = ("password_command", "token_command")
"""Settings whose value is a command, as a list of words."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
_MAX_FILE_BYTES: Final = 1024 * 1024
_HEADER: Final = "# Written by `horolog profile`; comments are lost when it writes again.\n"


@dataclass(slots=True)
class Profiles:
    """All profiles of a user, and the name of the one in use."""

    in_use: str | None = None
    by_name: dict[str, Layer] = field(default_factory=dict)


def path_of(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the profiles; None for a user without a home."""
    path = profiles_path(environment)
    return None if path is None else Path(path)


def check_name(name: str) -> str:
    """Return the name of a profile. Raises WrongUsage for a name that is not allowed."""
    if not _NAME.fullmatch(name):
        raise WrongUsage(
            f"{name!r} cannot be the name of a profile: it has 1 to 100 letters, digits, - and _"
        )
    return name


def load(path: Path | None) -> Profiles:
    """Read the profiles; a missing file means none. Raises WrongUsage for a file that cannot be
    used."""
    if path is None:
        return Profiles()
    try:
        with path.open("rb") as file:
            _check_owner(path, os.fstat(file.fileno()))
            content = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise WrongUsage(f"{path}: {error.strerror}") from None
    if len(content) > _MAX_FILE_BYTES:
        raise WrongUsage(f"{path} is longer than {_MAX_FILE_BYTES} bytes")
    import tomllib  # most users have no profiles

    try:
        tables = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise WrongUsage(f"{path} is not TOML: {error}") from None
    return _checked(tables, path)


def named(environment: Mapping[str, str], name: str | None) -> Layer:
    """Return the settings of the profile `name`, or without a name of the profile in use, if there
    is one. Raises WrongUsage for an unknown name."""
    path = path_of(environment)
    found = load(path)
    name = name or found.in_use
    if name is None:
        return {}
    if name not in found.by_name:
        raise WrongUsage(
            f"there is no profile {name!r} in {path}; `horolog profile list` shows them"
        )
    return found.by_name[name]


def _check_owner(path: Path, found: os.stat_result) -> None:
    # The file names programs to run, and servers to which passwords are sent.
    if found.st_uid not in (os.getuid(), 0) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise WrongUsage(
            f"{path} can be written by others, and it names programs to run: make it your own, "
            "and run chmod 600 on it"
        )


def _checked(tables: Mapping[str, object], path: Path) -> Profiles:
    found = Profiles()
    in_use, profiles = tables.get("profile"), tables.get("profiles", {})
    if not isinstance(profiles, dict) or not isinstance(in_use, str | None):
        raise WrongUsage(f"{path}: profile is a text, and profiles is tables")
    for name, table in profiles.items():
        if not isinstance(table, dict):
            raise WrongUsage(f"{path}: profiles.{name} is not a table")
        found.by_name[check_name(name)] = {
            key: _value(key, value, f"{path}: profiles.{name}") for key, value in table.items()
        }
    if in_use is not None and in_use not in found.by_name:
        raise WrongUsage(f"{path}: profile = {in_use!r}, and there is no such profile")
    found.in_use = in_use
    return found


def _value(key: str, value: object, place: str) -> str | tuple[str, ...]:
    if key in TEXTS and isinstance(value, str) and value:
        if key == "server":
            _check_no_login(value, f"{place}.{key}")
        return value
    if key in COMMANDS and isinstance(value, list) and value:
        words = tuple(word for word in value if isinstance(word, str))
        if len(words) == len(value):
            return words
    if key in TEXTS or key in COMMANDS:
        kind = "a text" if key in TEXTS else 'the words of a command, as ["program", "argument"]'
        raise WrongUsage(f"{place}.{key} is not {kind}")
    raise WrongUsage(
        f"{place}.{key} is not known; there are {', '.join((*TEXTS, *COMMANDS))}. A password "
        "itself cannot be there"
    )


def _check_no_login(address: str, place: str) -> None:
    try:
        check_no_login(address)
    except ValueError as error:
        raise WrongUsage(f"{place}: {error}") from None


def save(path: Path | None, profiles: Profiles) -> None:
    """Write all profiles to a file that only its owner can read. The old file stays until the new
    one is complete."""
    if path is None:
        raise WrongUsage("there is no home to keep profiles in: set HOME or XDG_CONFIG_HOME")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = path.resolve()  # if the file is a symbolic link, the link stays
    written = target.with_suffix(f".{os.getpid()}.new")
    try:
        number = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(_as_toml(profiles))
            file.flush()
            os.fsync(file.fileno())
        written.rename(target)
    finally:
        written.unlink(missing_ok=True)


def _as_toml(profiles: Profiles) -> str:
    lines = [_HEADER]
    if profiles.in_use is not None:
        lines.append(f"profile = {_quoted(profiles.in_use)}\n")
    for name, settings in sorted(profiles.by_name.items()):
        lines.append(f"\n[profiles.{name}]\n")
        for key, value in settings.items():
            if isinstance(value, str):
                lines.append(f"{key} = {_quoted(value)}\n")
            else:
                lines.append(f"{key} = [{', '.join(map(_quoted, value))}]\n")
    return "".join(lines)


def _quoted(text: str) -> str:
    """Return a basic string of TOML. JSON strings have the same form, except for DEL and escapes of
    characters above 16 bits."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
