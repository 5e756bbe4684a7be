"""The options of every command that takes `--server`, and the variables that stand for them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from typer.core import TyperOption

from ...client.cluster.servers import Servers
from ..errors import WrongUsage
from . import profiles
from .settings import Layers, servers_of


@dataclass(frozen=True, slots=True)
class SecurityOption:
    """One of them. Its name is that of the setting in a profile."""

    name: str
    metavar: str
    help: str

    @property
    def flag(self) -> str:
        """As it is written on a command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The variable of the environment."""
        return f"HOROLOG_{self.name.upper()}"

    @property
    def parameter(self) -> str:
        """What the parser calls it, which no option of a command is called."""
        return f"security_{self.name}"


OPTIONS: Final = (
    SecurityOption("profile", "NAME", "The profile to take; else the one in use."),
    SecurityOption("ca", "FILE", "Certificates (PEM) that the server's is to be signed by."),
    SecurityOption("client_cert", "FILE", "The client's own certificate (PEM)."),
    SecurityOption("client_key", "FILE", "Its key, when that is not in the same file."),
    SecurityOption("client_key_password_file", "FILE", "The password of an encrypted key."),
    SecurityOption("user", "NAME", "Who to log in as."),
    SecurityOption("password_file", "FILE", "The user's password, on one line."),
    SecurityOption("token_file", "FILE", "A token, to log in with by OAUTHBEARER."),
    SecurityOption(
        "mechanism", "NAME", "SCRAM-SHA-512, SCRAM-SHA-256, PLAIN or OAUTHBEARER (SASL)."
    ),
)
_BY_PARAMETER: Final = {option.parameter: option for option in OPTIONS}


def added(params: Sequence[Any]) -> list[Any]:
    """The options that a command with these parameters has beside them: all but those whose flag
    it needs itself, for which there are the variable and the profile."""
    own = {flag for param in params for flag in param.opts}
    return [
        TyperOption(
            param_decls=[option.parameter, option.flag],
            metavar=option.metavar,
            help=option.help,
            envvar=option.variable,
            show_envvar=True,
        )
        for option in OPTIONS
        if option.flag not in own
    ]


def with_profile(servers: Servers, name: str | None) -> Servers:
    """Servers beside those of `--server`: only a profile says how to be let in there. Raises
    WrongUsage."""
    if name is None:
        return servers
    layers = Layers({}, {}, profiles.named(os.environ, name))
    return replace(servers, security=layers.security(servers))


def is_security(param: Any) -> bool:
    """Whether a parameter is one of these."""
    return param.name in _BY_PARAMETER


def connected(context: Any) -> None:
    """Put what options, environment and profile say into `server`. Raises WrongUsage."""
    chosen = {option.parameter: context.params.pop(option.parameter, None) for option in OPTIONS}
    given = context.params.get("server")
    if given is None:
        return
    sources = {name: _source(context, name) for name in (*chosen, "server")}
    layers = _Places(chosen, sources, os.environ)
    # While a line is completed, what is wrong with it is not the matter.
    with suppress(*(WrongUsage,) if context.resilient_parsing else ()):
        context.params["server"] = servers_of(
            given, is_chosen=sources["server"] in (_OPTION, _ENVIRONMENT), layers=layers.layers
        )


_OPTION: Final = "COMMANDLINE"
_ENVIRONMENT: Final = "ENVIRONMENT"


def _source(context: Any, name: str) -> str:
    source = context.get_parameter_source(name)
    return "" if source is None else str(source.name)


@dataclass(frozen=True, slots=True)
class _Places:
    """What was given where."""

    chosen: Mapping[str, str | None]
    sources: Mapping[str, str]
    environment: Mapping[str, str]

    def layers(self, may_take_profile: bool) -> Layers:
        """The settings of each place. A profile in use is for its own server; one that is named
        is for any."""
        return Layers(
            dict(self._given(_OPTION)),
            dict(self._from_environment()),
            self._profile(may_take_profile),
        )

    def _given(self, source: str) -> Iterator[tuple[str, str]]:
        for parameter, value in self.chosen.items():
            if value is not None and self.sources[parameter] == source:
                yield _BY_PARAMETER[parameter].name, value

    def _from_environment(self) -> Iterator[tuple[str, str]]:
        # Not through the parser: a command may have no such option, and the variable still counts.
        for option in OPTIONS:
            value = self.environment.get(option.variable)
            if value:
                yield option.name, value

    def _profile(self, may_take_it: bool) -> Mapping[str, str | tuple[str, ...]]:
        name = self.chosen["security_profile"] or self.environment.get("HOROLOG_PROFILE")
        if name is None and not may_take_it:
            return {}
        return profiles.named(self.environment, name)
