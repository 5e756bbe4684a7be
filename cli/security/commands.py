"""`horolog profile`: manages profiles, named settings of servers and logins."""

import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from ...client.client import DEFAULT_ADDRESS
from ..errors import CommandFailed, WrongUsage
from ..options import Json, check_address, check_texts, group
from ..output import NOTHING, emit, json_line, table
from .profiles import Layer, Profiles

profile = group("Profiles: named servers, with their TLS settings and logins.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the profile.")]


def _option(metavar: str, help: str) -> Any:
    return typer.Option(metavar=metavar, help=help)


_Address = Annotated[
    str, typer.Option("--server", metavar="ADDRESS", help="Address of the server.")
]
_Ca = Annotated[
    str | None, _option("FILE", "CA certificates (PEM) that signed the server's certificate.")
]
_ClientCert = Annotated[str | None, _option("FILE", "Certificate of the client (PEM).")]
_ClientKey = Annotated[str | None, _option("FILE", "Private key of the client.")]
_ClientKeyPassword = Annotated[
    str | None, _option("FILE", "File with the password of the private key.")
]
_User = Annotated[str | None, _option("NAME", "User to log in as.")]
_PasswordFile = Annotated[
    str | None, _option("FILE", "File with the user's password, on one line.")
]
_PasswordCommand = Annotated[
    str | None, _option("COMMAND", "Command that prints the user's password, such as a keyring's.")
]
_TokenFile = Annotated[str | None, _option("FILE", "File with a token for OAUTHBEARER.")]
_TokenCommand = Annotated[str | None, _option("COMMAND", "Command that prints a token.")]
_Mechanism = Annotated[str | None, _option("NAME", "SASL mechanism; by default SCRAM-SHA-512.")]


@profile.command()
def add(
    name: Name,
    address: _Address = DEFAULT_ADDRESS,
    ca: _Ca = None,
    client_cert: _ClientCert = None,
    client_key: _ClientKey = None,
    client_key_password_file: _ClientKeyPassword = None,
    user: _User = None,
    password_file: _PasswordFile = None,
    password_command: _PasswordCommand = None,
    token_file: _TokenFile = None,
    token_command: _TokenCommand = None,
    mechanism: _Mechanism = None,
) -> None:
    """Add a profile, or replace it, and use it from now on.

    The profile stores where a password is found, never the password itself.
    """
    from . import profiles
    from .settings import Layers

    profiles.check_name(name)
    paths = {
        "ca": ca,
        "client_cert": client_cert,
        "client_key": client_key,
        "client_key_password_file": client_key_password_file,
        "password_file": password_file,
        "token_file": token_file,
    }
    texts = {
        "server": str(check_address(address, "--server")),
        "user": user,
        "mechanism": mechanism,
    }
    commands = {"password_command": password_command, "token_command": token_command}
    settings: Layer = {
        **{key: text for key, text in texts.items() if text is not None},
        **{key: _absolute(path) for key, path in paths.items() if path is not None},
        **{key: _words(key, text) for key, text in commands.items() if text is not None},
    }
    for value in settings.values():
        check_texts([value] if isinstance(value, str) else list(value))
    # Called only to refuse settings that contradict each other.
    _ = Layers({}, {}, settings).security(check_address(address, "--server"))
    path = profiles.path_of(os.environ)
    found = profiles.load(path)
    found.by_name[name] = settings
    found.in_use = name
    _save(path, found)
    emit([f"profile {name} is in use: {settings['server']}"])


@profile.command()
def use(name: Name) -> None:
    """Use a profile from now on, wherever no other server is named."""
    from . import profiles

    path = profiles.path_of(os.environ)
    _ = profiles.named(os.environ, name)
    found = profiles.load(path)
    found.in_use = name
    _save(path, found)
    emit([f"profile {name} is in use: {found.by_name[name].get('server', DEFAULT_ADDRESS)}"])


@profile.command("list")
def list_(as_json: Json = False) -> None:
    """List the profiles; the one in use has a star."""
    from . import profiles

    found = profiles.load(profiles.path_of(os.environ))
    if as_json:
        emit(
            json_line({"profile": name, "in_use": name == found.in_use, **settings})
            for name, settings in sorted(found.by_name.items())
        )
        return
    rows = [
        (
            f"{name}*" if name == found.in_use else name,
            *(str(settings.get(key, NOTHING)) for key in ("server", "user", "mechanism")),
        )
        for name, settings in sorted(found.by_name.items())
    ]
    emit(table(("profile", "server", "user", "mechanism"), rows) if rows else ["no profiles"])


@profile.command()
def remove(name: Name) -> None:
    """Remove a profile; its password stays where it is."""
    from . import profiles

    path = profiles.path_of(os.environ)
    _ = profiles.named(os.environ, name)
    found = profiles.load(path)
    del found.by_name[name]
    if found.in_use == name:
        found.in_use = None
    _save(path, found)
    emit([f"profile {name} is removed"])


def _save(path: Path | None, found: Profiles) -> None:
    from . import profiles

    try:
        profiles.save(path, found)
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}") from None


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _words(key: str, text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise WrongUsage(f"--{key.replace('_', '-')}: {error}") from None
    if not words:
        raise WrongUsage(f"--{key.replace('_', '-')} is empty")
    return words
