"""What was given where of how to be let in: as options, in the environment, in a profile."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ...client.cluster.servers import Servers
from ..options import check_file
from . import profiles
from .options import BY_PARAMETER, OPTION, OPTIONS
from .settings import Layers


def with_profile(servers: Servers, name: str | None) -> Servers:
    """Servers beside those of `--server`: only a profile says how to be let in there. Raises
    WrongUsage."""
    if name is None:
        return servers
    layers = Layers({}, {}, profiles.named(os.environ, name))
    return replace(servers, security=layers.security(servers))


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """What was given where."""

    chosen: Mapping[str, str | None]
    sources: Mapping[str, str]
    environment: Mapping[str, str]
    flags: Mapping[str, str]
    """How each option is written in this command, by its name."""

    def layers(self, may_take_profile: bool) -> Layers:
        """The settings of each place. A profile in use is for its own server; one that is named
        is for any."""
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
