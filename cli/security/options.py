"""The security options of every command with `--server`, and their environment variables."""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from typer.core import TyperOption

from ...values import value_class


@value_class
class SecurityOption:
    """A security option. Its name is that of the setting in a profile."""

    name: str
    metavar: str
    help: str

    @property
    def flag(self) -> str:
        """The option as written on a command line."""
        return f"--{self.name.replace('_', '-')}"

    def flag_beside(self, own: Collection[str]) -> str:
        """The flag in a command with the flags `own`: `--login-NAME` if the command uses the usual
        flag for something else."""
        return f"--login-{self.flag.removeprefix('--')}" if self.flag in own else self.flag

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"HOROLOG_{self.name.upper()}"

    @property
    def parameter(self) -> str:
        """Name of the parameter for the parser; no other option has such a name."""
        return f"security_{self.name}"


MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")

OPTIONS: Final = (
    SecurityOption("profile", "NAME", "Profile to use; by default the one in use."),
    SecurityOption("ca", "FILE", "CA certificates (PEM) that signed the server's certificate."),
    SecurityOption("client_cert", "FILE", "Certificate of the client (PEM)."),
    SecurityOption(
        "client_key", "FILE", "Private key of the client, if it is not in the same file."
    ),
    SecurityOption(
        "client_key_password_file", "FILE", "File with the password of an encrypted private key."
    ),
    SecurityOption("user", "NAME", "User to log in as."),
    SecurityOption("password_file", "FILE", "File with the password of --user, on one line."),
    SecurityOption("token_file", "FILE", "File with a token for OAUTHBEARER."),
    SecurityOption(
        "mechanism", "NAME", "SCRAM-SHA-512, SCRAM-SHA-256, PLAIN or OAUTHBEARER (SASL)."
    ),
)
OPTION: Final = "COMMANDLINE"
ENVIRONMENT: Final = "ENVIRONMENT"
"""The parser's names for the source of a parameter."""

BY_PARAMETER: Final = {option.parameter: option for option in OPTIONS}


def added(params: Sequence[Any]) -> list[Any]:
    """Return the security options to add to a command with these parameters."""
    own = flags_of(params)
    return [
        TyperOption(
            param_decls=[option.parameter, option.flag_beside(own)],
            metavar=option.metavar,
            help=option.help,
            envvar=option.variable,
            show_envvar=True,
            autocompletion=_complete_mechanism if option.name == "mechanism" else None,
        )
        for option in OPTIONS
    ]


def _complete_mechanism(context: Any, arguments: list[str], incomplete: str) -> list[str]:
    return [name for name in MECHANISMS if name.startswith(incomplete)]


def flags_of(params: Sequence[Any]) -> frozenset[str]:
    return frozenset(flag for param in params for flag in param.opts)


def is_security(param: Any) -> bool:
    """Whether a parameter is a security option."""
    return param.name in BY_PARAMETER


def profiles_path(environment: Mapping[str, str]) -> str | None:
    """Return the path of the user's profiles; None for a user without a home."""
    base = environment.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):  # the XDG specification ignores relative paths
        home = environment.get("HOME", "")
        if not os.path.isabs(home):
            return None
        base = os.path.join(home, ".config")
    return os.path.join(base, "horolog", "config.toml")
