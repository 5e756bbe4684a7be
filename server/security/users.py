"""The users: `users.json` in the data directory.

    {"format": 1,
     "decoy_key": BASE64,
     "users": {NAME: {MECHANISM: {"salt": BASE64, "iterations": N,
                                  "stored_key": BASE64, "server_key": BASE64}}}}

It is replaced as a whole and readable by the broker's account alone. No password is in it, and
nothing to log in with; who has it can try passwords against it.

For a name that no user has there is a credential all the same, made of the name and `decoy_key`:
so a login of such a name goes as one with a wrong password, message for message.
"""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

from ...protocol.errors import CodedError, ResourceNotFound, UnacceptableCredential
from ...protocol.limits import MAX_SCRAM_ITERATIONS, MIN_SCRAM_ITERATIONS
from ...protocol.sasl.mechanisms import SCRAM_MECHANISMS, ScramMechanism
from ...protocol.sasl.scram import ScramCredential
from ...storage.directory.known_files import USERS_FILE
from ...storage.files import Files
from ...values import value_class
from .documents import Document

DEFAULT_ITERATIONS: Final = 16_384
"""Rounds over a password where the caller gives no number."""

MAX_USERS_STORED: Final = 100_000
"""As many as are held: some 100 MB."""
MAX_USER_NAME_BYTES: Final = 255
_SALT_BYTES: Final = 16
_DECOY_KEY_BYTES: Final = 32

Credentials = Mapping[str, ScramCredential]
"""By mechanism."""


@value_class
class Removal:
    """A password to be taken away."""

    name: str
    mechanism: ScramMechanism


@value_class
class Entry:
    """A password to be given."""

    name: str
    credential: ScramCredential


CredentialChange = Removal | Entry


class Users:
    """The table, as it is in memory. It may be read while another thread changes it."""

    def __init__(self, files: Files, data_dir: Path, random_bytes: Callable[[int], bytes]) -> None:
        """Raises `StorageError` for a file that cannot be understood, and `OSError`."""
        self._document = Document(files, data_dir / USERS_FILE, "add the users")
        self._changing = Lock()
        found = self._document.read(_stored)
        self._decoy_key, self._users = found or (random_bytes(_DECOY_KEY_BYTES), {})

    def __len__(self) -> int:
        return len(self._users)

    def names(self) -> list[str]:
        return sorted(self._users)

    def credentials(self, name: str) -> Credentials:
        """A user's passwords. Raises `ResourceNotFound`."""
        found = self._users.get(name)
        if found is None:
            raise ResourceNotFound(f"there is no user {name[:100]!r}")
        return found

    def credential(self, name: str, mechanism: ScramMechanism) -> ScramCredential:
        """A user's password; one that nothing matches for who has none."""
        # Made for every name: the time does not show which exist.
        decoy = self._decoy(name, mechanism)
        return self._users.get(name, {}).get(mechanism.name) or decoy

    def any_credential(self, name: str) -> ScramCredential:
        """A password of the user of any mechanism, to be checked against one in clear."""
        decoy = self._decoy(name, SCRAM_MECHANISMS[max(SCRAM_MECHANISMS)])
        found = self._users.get(name)
        return found[max(found)] if found else decoy

    def change_each(self, groups: Sequence[Sequence[CredentialChange]]) -> list[CodedError | None]:
        """Make the changes, all in one write, those of a group together or not at all; says of each
        group what was wrong with it.

        Raises `OSError`; then nothing has changed. For a thread.
        """
        with self._changing:
            users: dict[str, Credentials] = dict(self._users)
            outcomes = [_make_all(users, group) for group in groups]
            if any(outcome is None for outcome in outcomes):
                self._document.write(
                    decoy_key=b64encode(self._decoy_key).decode(),
                    users={
                        name: {each.mechanism.name: _written(each) for each in credentials.values()}
                        for name, credentials in sorted(users.items())
                    },
                )
                self._users = users
            return outcomes

    def _decoy(self, name: str, mechanism: ScramMechanism) -> ScramCredential:
        made = hmac.digest(self._decoy_key, f"{mechanism.name} {name}".encode(), "sha512")
        key = hmac.digest(self._decoy_key, made, mechanism.hash_name)
        return ScramCredential(mechanism, made[:_SALT_BYTES], DEFAULT_ITERATIONS, key, key)


def _make_all(
    users: dict[str, Credentials], changes: Sequence[CredentialChange]
) -> CodedError | None:
    """Make changes of the table; what is wrong with the first that cannot be made, and then none
    is."""
    before = {change.name: users.get(change.name) for change in changes}
    for change in changes:
        problem = _make(users, change)
        if problem is not None:
            for name, credentials in before.items():
                users.pop(name, None)
                if credentials is not None:
                    users[name] = credentials
            return problem
    return None


def _make(users: dict[str, Credentials], change: CredentialChange) -> CodedError | None:
    """Make one change of the table; what is wrong with it, if it cannot be made."""
    credentials = dict(users.get(change.name, {}))
    if isinstance(change, Removal):
        if change.mechanism.name not in credentials:
            return ResourceNotFound(
                f"the user {change.name[:100]!r} has no password for {change.mechanism.name}"
            )
        del credentials[change.mechanism.name]
    else:
        problem = _problem(change)
        if problem is None and not credentials and len(users) >= MAX_USERS_STORED:
            problem = f"there are {MAX_USERS_STORED} users, as many as there may be"
        if problem is not None:
            return UnacceptableCredential(problem)
        credentials[change.credential.mechanism.name] = change.credential
    if credentials:
        users[change.name] = credentials
    else:
        del users[change.name]
    return None


def _problem(entry: Entry) -> str | None:
    iterations = entry.credential.iterations
    if not MIN_SCRAM_ITERATIONS <= iterations <= MAX_SCRAM_ITERATIONS:
        return (
            f"{iterations} iterations; allowed are {MIN_SCRAM_ITERATIONS} to {MAX_SCRAM_ITERATIONS}"
        )
    return name_problem(entry.name)


def name_problem(name: str) -> str | None:
    """Why a user cannot have this name, if so."""
    if not name or len(name.encode("utf-8", "replace")) > MAX_USER_NAME_BYTES:
        return f"a user's name must have 1 to {MAX_USER_NAME_BYTES} bytes"
    if not name.isprintable():
        return "a user's name must be printable"
    return None


def _stored(document: Mapping[str, Any]) -> tuple[bytes, Mapping[str, Credentials]]:
    """The key of the decoys, and the users."""
    return b64decode(document["decoy_key"], validate=True), {
        str(name): {
            each: _credential(SCRAM_MECHANISMS[each], written)
            for each, written in credentials.items()
        }
        for name, credentials in document["users"].items()
    }


def _written(credential: ScramCredential) -> dict[str, Any]:
    return {
        "salt": b64encode(credential.salt).decode(),
        "iterations": credential.iterations,
        "stored_key": b64encode(credential.stored_key).decode(),
        "server_key": b64encode(credential.server_key).decode(),
    }


def _credential(mechanism: ScramMechanism, written: Mapping[str, Any]) -> ScramCredential:
    iterations = written["iterations"]
    if type(iterations) is not int or not (
        MIN_SCRAM_ITERATIONS <= iterations <= MAX_SCRAM_ITERATIONS
    ):
        raise ValueError(f"iterations is {iterations!r}")
    salt, stored, server = (
        b64decode(written[name], validate=True) for name in ("salt", "stored_key", "server_key")
    )
    if not salt or {len(stored), len(server)} != {mechanism.hash_bytes}:
        raise ValueError("a salt or a key does not have its length")
    return ScramCredential(mechanism, salt, iterations, stored, server)
