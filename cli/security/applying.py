"""Puts the options of security, the environment and the profile into `--server` of a command.

What takes long to import is imported only where one of them is given.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..errors import WrongUsage
from .options import ENVIRONMENT, OPTION, OPTIONS, flags_of, profiles_path


def connected(context: Any) -> None:
    """Put what options, environment and profile say into `server`. Raises WrongUsage."""
    chosen = {option.parameter: context.params.pop(option.parameter, None) for option in OPTIONS}
    given = context.params.get("server")
    if given is None or not (_is_any_given(chosen) or _has_profiles()):
        return
    from .settings import GivenOptions, servers_of

    sources = {name: _source(context, name) for name in (*chosen, "server")}
    own = flags_of(context.command.params)
    flags = {option.name: option.flag_beside(own) for option in OPTIONS}
    places = GivenOptions(chosen, sources, os.environ, flags)
    # While a line is completed, what is wrong with it is not the matter.
    with suppress(*(WrongUsage,) if context.resilient_parsing else ()):
        context.params["server"] = servers_of(
            given, is_chosen=sources["server"] in (OPTION, ENVIRONMENT), layers=places.layers
        )


def _is_any_given(chosen: Mapping[str, str | None]) -> bool:
    return any(chosen.values()) or any(os.environ.get(option.variable) for option in OPTIONS)


def _has_profiles() -> bool:
    path = profiles_path(os.environ)
    return path is not None and os.path.lexists(path)


def _source(context: Any, name: str) -> str:
    source = context.get_parameter_source(name)
    return "" if source is None else str(source.name)
