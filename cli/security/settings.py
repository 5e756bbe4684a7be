"""Finds the security settings of a command, from its options, the environment and a profile."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from ...client.cluster.servers import Servers, parse_servers
from ...client.errors import SecurityError
from ...client.security.security import (
    Secret,
    SecretCommand,
    SecretFile,
    SecretVariable,
    Security,
    mechanism_of,
)
from ..errors import WrongUsage
from ..options import check_file
from . import profiles
from .options import BY_PARAMETER, OPTION, OPTIONS
from .profiles import Layer

_TLS: Final = ("ca", "client_cert")
_TOKENS: Final = ("token_file", "token_command")


@dataclass(frozen=True, slots=True)
class Layers:
    """Settings by source; options win over the environment, which wins over the profile."""

    options: Layer
    environment: Layer
    profile: Layer
    flags: Mapping[str, str] = field(default_factory=dict)
    """Flag of each option in this command, by the option's name."""

    def security(self, servers: Servers) -> Security | None:
        """Return the security settings for these servers; None without any. Raises WrongUsage for
        settings that contradict each other."""
        layers = [self.options, self.environment, self.profile]
        if not servers.tls:
            # TLS settings of the environment and the profile may be meant for another server.
            layers[1:] = [_without_tls(layer) for layer in layers[1:]]
        own = _known_with(layers, ("client_cert",))
        who = _known_with(layers, ("user", *_TOKENS))
        mechanism = _text(who, "mechanism")
        try:
            found = Security(
                tls=servers.tls,
                ca=_text(layers, "ca"),
                certificate=_text(own, "client_cert"),
                key=_text(own, "client_key"),
                key_password=_secret(own, "client_key_password"),
                mechanism=None if mechanism is None else mechanism_of(mechanism),
                user=_text(who, "user"),
                password=_secret(who, "password"),
                token=_secret(who, "token"),
            )
        except SecurityError as error:
            raise WrongUsage(self._with_options(str(error))) from None
        return None if found == Security(tls=False) else found

    def _with_options(self, text: str) -> str:
        """Add to an error of the client where the command line sets the missing value."""
        password_file = self.flags.get("password_file", "--password-file")
        hints: dict[str, str] = {
            "has no password": f"{password_file}, HOROLOG_PASSWORD_FILE, or a profile's "
            "password_command",
            "no user": "--user or HOROLOG_USER",
            "needs a user": "--user or HOROLOG_USER",
            "needs a token": "--token-file, HOROLOG_TOKEN_FILE, or a profile's token_command",
        }
        hint = next((where for said, where in hints.items() if said in text), None)
        return text if hint is None else f"{text} ({hint})"


def with_profile(servers: Servers, name: str | None) -> Servers:
    """Return servers other than those of `--server` with the security of a profile: options and
    environment do not apply to them. Raises WrongUsage."""
    if name is None:
        return servers
    layers = Layers({}, {}, profiles.named(os.environ, name))
    return replace(servers, security=layers.security(servers))


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """The security options of a command, with the source of each."""

    chosen: Mapping[str, str | None]
    sources: Mapping[str, str]
    environment: Mapping[str, str]
    flags: Mapping[str, str]
    """Flag of each option in this command, by the option's name."""

    def layers(self, may_take_profile: bool) -> Layers:
        """Return the settings by source. A profile that is named applies to any server; the profile
        in use applies only with `may_take_profile`, for its own server."""
        return Layers(
            dict(self._given(OPTION)),
            dict(self._from_environment()),
            self._profile(may_take_profile),
            self.flags,
        )

    def _given(self, source: str) -> Iterator[tuple[str, str]]:
        for parameter, value in self.chosen.items():
            if value is not None and self.sources[parameter] == source:
                option = BY_PARAMETER[parameter]
                if option.metavar == "FILE":
                    check_file(value, self.flags[option.name])
                yield option.name, value

    def _from_environment(self) -> Iterator[tuple[str, str]]:
        # Read without the parser: a variable counts even if the command does not have the option.
        for option in OPTIONS:
            value = self.environment.get(option.variable)
            if value:
                yield option.name, value

    def _profile(self, may_take_it: bool) -> Mapping[str, str | tuple[str, ...]]:
        name = self.chosen["security_profile"] or self.environment.get("HOROLOG_PROFILE")
        if name is None and not may_take_it:
            return {}
        return profiles.named(self.environment, name)


def _without_tls(layer: Layer) -> Layer:
    return {name: value for name, value in layer.items() if name not in (*_TLS, "client_key")}


def _known_with(layers: Sequence[Layer], names: Sequence[str]) -> list[Layer]:
    """Return the layers up to the first that has one of these settings. Later layers may have the
    password of another user, which must not be sent."""
    for count, layer in enumerate(layers, 1):
        if any(name in layer for name in names):
            return list(layers[:count])
    return list(layers[:1])


def _text(layers: Sequence[Layer], name: str) -> str | None:
    for layer in layers:
        value = layer.get(name)
        if isinstance(value, str):
            return value
    return None


def _secret(layers: Sequence[Layer], name: str) -> Secret | None:
    for layer in layers:
        path, words = layer.get(f"{name}_file"), layer.get(f"{name}_command")
        if isinstance(path, str):
            return SecretFile(path)
        if isinstance(words, tuple):
            return _Once(words)
    return None


@dataclass(frozen=True, slots=True)
class _Once(Secret):
    """A secret that a command prints. The command runs once per process, because a keyring may
    prompt the user."""

    words: tuple[str, ...]

    def read(self) -> str:
        return _printed(self.words)


@cache
def _printed(words: tuple[str, ...]) -> str:
    return SecretCommand(words).read()


def for_workers(servers: Servers, prefix: str = "") -> Servers:
    """Return servers for use in worker processes that start from now on. A secret that a command
    prints is put into an environment variable, which workers inherit; so it appears on no command
    line and in no plan. `prefix` distinguishes the variables of several servers."""
    security = servers.security
    if security is None:
        return servers

    def inherited(name: str, secret: Any) -> Any:
        if not isinstance(secret, _Once):
            return secret
        variable = f"HOROLOG_WORKER_{prefix}{name}"
        os.environ[variable] = secret.read()
        return SecretVariable(variable)

    security = replace(
        security,
        password=inherited("PASSWORD", security.password),
        token=inherited("TOKEN", security.token),
        key_password=inherited("KEY_PASSWORD", security.key_password),
    )
    return replace(servers, security=security)


def servers_of(
    given: str | Servers, *, is_chosen: bool, layers: Callable[[bool], Layers]
) -> Servers:
    """Return the servers of a command, with their security. `is_chosen` says whether the user named
    the address; if not, `layers` is called with True, and the profile in use applies."""
    servers = parse_servers(given)
    found = layers(not is_chosen)
    address = found.profile.get("server")
    if not is_chosen and isinstance(address, str):
        servers = parse_servers(address)
    return replace(servers, security=found.security(servers))
