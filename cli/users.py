"""`horolog user`: add, password, remove, list.

With --data-dir the users in the data directory of a stopped broker are changed, so that users exist
at its first start. Otherwise a running broker is asked to change them; the change applies at once.
"""

import getpass
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ..client.administer.access import UserAdmin
from ..client.cluster.servers import Servers
from ..protocol.api.security.scram_credentials import ScramUpsertion
from ..protocol.errors import CodedError, DuplicateResource, ResourceNotFound
from ..protocol.limits import MAX_SCRAM_ITERATIONS, MIN_SCRAM_ITERATIONS
from ..protocol.sasl.mechanisms import MAX_PASSWORD_BYTES, SCRAM_MECHANISMS
from ..protocol.sasl.scram import credential_of, salted_password
from ..server.security.users import (
    DEFAULT_ITERATIONS,
    CredentialChange,
    CredentialRemoval,
    UserEntry,
    Users,
)
from ..storage.metadata.local_metadata import LocalMetadata
from .broker_requests import ask
from .errors import WrongUsage
from .options import DEFAULT_SERVER, Json, Server, check_text, group, unreadable
from .output import emit, json_line, table
from .security.offline_directory import DataDir, OfflineDirectory

_SALT_BYTES: Final = 16
_HOW: Final = "--password-file FILE, or --password-file - for standard input"
_BY_NUMBER: Final = {each.number: each for each in SCRAM_MECHANISMS.values()}

users = group("Add users, change their passwords, remove and list them.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.", callback=check_text)]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="File whose first line is the password; - for standard input. By default the "
        "terminal asks for it.",
    ),
]
Iterations = Annotated[
    int,
    typer.Option(
        min=MIN_SCRAM_ITERATIONS,
        max=MAX_SCRAM_ITERATIONS,
        metavar="N",
        help="Rounds of the hash. More rounds protect a stolen file better, and make logins "
        "slower.",
    ),
]


Found = Mapping[str, Mapping[int, int]]
"""Iterations by user and by the number of the SCRAM mechanism."""


@users.command()
def add(
    name: Name,
    password_file: PasswordFile = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    data_dir: DataDir = None,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Add a user, with a password for SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN.

    The password is never an argument. It is stored as a salted key, which cannot be used to log in.
    """
    given = _given(password_file)
    target = _target(data_dir, server, makes=True)
    if name in target.users():
        raise DuplicateResource(f"the user {name!r} exists; `horolog user password` changes it")
    target.alter(_upsertions(name, given or _asked(), iterations), {})
    emit([f"added user {name}"])


@users.command()
def password(
    name: Name,
    password_file: PasswordFile = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    data_dir: DataDir = None,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Change the password of a user. Connections that are logged in stay logged in."""
    given = _given(password_file)
    target = _target(data_dir, server)
    _existing(target, name)
    target.alter(_upsertions(name, given or _asked(), iterations), {})
    emit([f"changed the password of {name}"])


@users.command()
def remove(name: Name, data_dir: DataDir = None, server: Server = DEFAULT_SERVER) -> None:
    """Remove a user. Connections that are logged in stay logged in until they have to log in again
    (connections.max.reauth.ms)."""
    target = _target(data_dir, server)
    target.alter((), {name: list(_existing(target, name))})
    emit([f"removed user {name}"])


@users.command("list")
def list_(data_dir: DataDir = None, server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """List the users, and how they may log in."""
    found = _target(data_dir, server).users()
    named = {
        name: {_BY_NUMBER[number].name: its for number, its in sorted(credentials.items())}
        for name, credentials in found.items()
    }
    if as_json:
        emit(json_line({"user": name, "iterations": named[name]}) for name in named)
    elif named:
        rows = [
            (name, ", ".join(f"{each} ({its} iterations)" for each, its in credentials.items()))
            for name, credentials in named.items()
        ]
        emit(table(("user", "mechanisms"), rows))
    else:
        emit(["no users"])


class _BrokerUsers:
    """Users of a running broker, changed through its API."""

    def __init__(self, server: Servers) -> None:
        self._server = server

    def users(self) -> Found:
        return ask(UserAdmin, self._server, UserAdmin.users)

    def alter(
        self, upsertions: Sequence[ScramUpsertion], removed: Mapping[str, Sequence[int]]
    ) -> None:
        ask(UserAdmin, self._server, lambda admin: admin.alter_users(upsertions, removed))


class _StoredUsers(OfflineDirectory):
    """Users in the data directory of a stopped broker."""

    def users(self) -> Found:
        return self.use(
            lambda metadata: {
                name: {SCRAM_MECHANISMS[each].number: its.iterations for each, its in held.items()}
                for name, held in sorted(metadata.state.access.users.items())
            }
        )

    def alter(
        self, upsertions: Sequence[ScramUpsertion], removed: Mapping[str, Sequence[int]]
    ) -> None:
        changes: list[list[CredentialChange]] = [
            [CredentialRemoval(name, _BY_NUMBER[number]) for number in numbers]
            for name, numbers in removed.items()
        ]
        for each in upsertions:
            mechanism = _BY_NUMBER[each.mechanism]
            made = credential_of(mechanism, each.salted_password, each.salt, each.iterations)
            changes.append([UserEntry(each.name, made)])

        def change(metadata: LocalMetadata) -> Sequence[CodedError | None]:
            users = Users(lambda: metadata.state.access, os.urandom)
            return metadata.change_access(lambda: users.planned(changes))

        outcomes = self.use(change)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome


def _target(
    data_dir: Path | None, server: Servers, *, makes: bool = False
) -> _BrokerUsers | _StoredUsers:
    if data_dir is None:
        return _BrokerUsers(server)
    return _StoredUsers(data_dir, makes=makes)


def _existing(target: _BrokerUsers | _StoredUsers, name: str) -> Mapping[int, int]:
    found = target.users().get(name)
    if found is None:
        raise ResourceNotFound(f"there is no user {name!r}; `horolog user list` shows who there is")
    return found


def _upsertions(name: str, password: str, iterations: int) -> list[ScramUpsertion]:
    made = []
    for mechanism in SCRAM_MECHANISMS.values():
        salt = os.urandom(_SALT_BYTES)
        made.append(
            ScramUpsertion(
                name=name,
                mechanism=mechanism.number,
                iterations=iterations,
                salt=salt,
                salted_password=salted_password(mechanism, password, salt, iterations),
            )
        )
    return made


def _given(file: Path | None) -> str | None:
    """Read the password from the file or standard input; None if it has to be typed at the
    terminal. Raises WrongUsage without a terminal, or for text that cannot be a password."""
    if file is None:
        if sys.stdin is None or not sys.stdin.isatty():
            raise WrongUsage(f"there is no password: give it with {_HOW}")
        return None
    content = sys.stdin.buffer.readline() if str(file) == "-" else _first_line(file)
    try:
        return _checked(content.rstrip(b"\r\n").decode())
    except UnicodeDecodeError:
        raise WrongUsage("the password is not UTF-8") from None


def _first_line(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.readline(MAX_PASSWORD_BYTES + 2)
    except OSError as error:
        raise WrongUsage(unreadable("--password-file", file, error)) from None


def _asked() -> str:
    try:
        first = getpass.getpass("Password: ")
        again = getpass.getpass("Again: ")
    except EOFError:
        raise WrongUsage(f"there is no password: type it, or give it with {_HOW}") from None
    if again != first:
        raise WrongUsage("the two passwords differ")
    return _checked(first)


def _checked(password: str) -> str:
    if not 0 < len(password.encode()) <= MAX_PASSWORD_BYTES or "\0" in password:
        raise WrongUsage(
            f"a password has 1 to {MAX_PASSWORD_BYTES} bytes, and no 0 byte; give it with {_HOW}"
        )
    return password
