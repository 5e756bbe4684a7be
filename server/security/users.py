"""Users, as logins and requests need them.

A stored user has a salted key per mechanism (`StoredCredential`). It contains no password and
cannot be used to log in, but a person with a copy can test passwords against it.

An unknown name has a credential too, derived from the name and a secret key, so that its login
proceeds like one with a wrong password, message by message. The key is stored with the first user,
and is the same at all members of a cluster.
"""

import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from ...protocol.errors import CodedError, ResourceNotFound, UnacceptableCredential
from ...protocol.limits import MAX_SCRAM_ITERATIONS, MIN_SCRAM_ITERATIONS
from ...protocol.sasl.mechanisms import SCRAM_MECHANISMS, ScramMechanism
from ...protocol.sasl.scram import ScramCredential
from ...storage.metadata.access_records import (
    DECOY_KEY_BYTES,
    IN_RECORD,
    MAX_USER_NAME_BYTES,
    AccessRecord,
    AccessState,
    CredentialsAltered,
    DecoyKeySet,
    StoredCredential,
)
from ...values import value_class

DEFAULT_ITERATIONS: Final = 16_384
"""Iterations of the password hash if the caller gives no number."""

MAX_USERS_STORED: Final = 100_000
"""Largest number of users: some 100 MB."""
_SALT_BYTES: Final = 16

Credentials = Mapping[str, StoredCredential]
"""Stored credentials of one user by mechanism."""


@value_class
class CredentialRemoval:
    """CredentialRemoval of a user's credential for one mechanism."""

    name: str
    mechanism: ScramMechanism


@value_class
class UserEntry:
    """A user's new credential."""

    name: str
    credential: ScramCredential


CredentialChange = CredentialRemoval | UserEntry


class Users:
    """The stored users. Any thread may read them."""

    def __init__(
        self, access: Callable[[], AccessState], random_bytes: Callable[[int], bytes]
    ) -> None:
        """`access` returns the stored state."""
        self._access = access
        self._own_decoy_key = random_bytes(DECOY_KEY_BYTES)
        """Key for credentials of unknown names while none is stored."""

    def __len__(self) -> int:
        return len(self._access().users)

    def names(self) -> list[str]:
        return sorted(self._access().users)

    def credentials(self, name: str) -> Mapping[str, ScramCredential]:
        """Return a user's credentials by mechanism. Raises `ResourceNotFound`."""
        found = self._access().users.get(name)
        if found is None:
            raise ResourceNotFound(f"there is no user {name[:100]!r}")
        return {
            mechanism: ScramCredential(SCRAM_MECHANISMS[mechanism], *stored)
            for mechanism, stored in found.items()
        }

    def credential(self, name: str, mechanism: ScramMechanism) -> ScramCredential:
        """Return a user's credential; for a name without one, a credential that no password
        matches."""
        # The decoy is made for every name, so that the time does not reveal which names exist.
        access = self._access()
        decoy = self._decoy(access, name, mechanism)
        stored = access.users.get(name, {}).get(mechanism.name) or decoy
        return ScramCredential(mechanism, *stored)

    def any_credential(self, name: str) -> ScramCredential:
        """Return a user's credential for any mechanism, to be checked against a plaintext
        password."""
        access = self._access()
        mechanism = max(SCRAM_MECHANISMS)
        decoy = self._decoy(access, name, SCRAM_MECHANISMS[mechanism])
        held = access.users.get(name) or {mechanism: decoy}
        mechanism = max(held)
        return ScramCredential(SCRAM_MECHANISMS[mechanism], *held[mechanism])

    def planned(
        self, groups: Sequence[Sequence[CredentialChange]]
    ) -> tuple[list[CodedError | None], list[AccessRecord]]:
        """Return the error of each group of changes (None: valid), and the records that carry out
        the valid ones. The changes of a group are made together or not at all. May be called in any
        thread."""
        access = self._access()
        users: dict[str, Credentials] = dict(access.users)
        outcomes: list[CodedError | None] = []
        changes: list[tuple[str, str, StoredCredential | None]] = []
        for group in groups:
            problem = _make_all(users, group)
            outcomes.append(problem)
            if problem is None:
                changes += map(_stored, group)
        if not changes:
            return outcomes, []
        key = [] if access.decoy_key else [DecoyKeySet(self._own_decoy_key)]
        return outcomes, [*key, *_records(changes)]

    def _decoy(self, access: AccessState, name: str, mechanism: ScramMechanism) -> StoredCredential:
        decoy_key = access.decoy_key or self._own_decoy_key
        made = hmac.digest(decoy_key, f"{mechanism.name} {name}".encode(), "sha512")
        key = hmac.digest(decoy_key, made, mechanism.hash_name)
        return StoredCredential(made[:_SALT_BYTES], DEFAULT_ITERATIONS, key, key)


def _records(
    changes: Sequence[tuple[str, str, StoredCredential | None]],
) -> Iterator[CredentialsAltered]:
    for start in range(0, len(changes), IN_RECORD):
        yield CredentialsAltered(changes[start : start + IN_RECORD])


def _stored(change: CredentialChange) -> tuple[str, str, StoredCredential | None]:
    if isinstance(change, CredentialRemoval):
        return change.name, change.mechanism.name, None
    made = change.credential
    stored = StoredCredential(made.salt, made.iterations, made.stored_key, made.server_key)
    return change.name, made.mechanism.name, stored


def _make_all(
    users: dict[str, Credentials], changes: Sequence[CredentialChange]
) -> CodedError | None:
    """Apply changes to the table: all of them, or none. Returns the error of the first invalid
    change, or None."""
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
    """Apply one change to the table. Returns its error, or None."""
    credentials = dict(users.get(change.name, {}))
    if isinstance(change, CredentialRemoval):
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
        _, mechanism, stored = _stored(change)
        assert stored is not None
        credentials[mechanism] = stored
    if credentials:
        users[change.name] = credentials
    else:
        del users[change.name]
    return None


def _problem(entry: UserEntry) -> str | None:
    iterations = entry.credential.iterations
    if not MIN_SCRAM_ITERATIONS <= iterations <= MAX_SCRAM_ITERATIONS:
        return (
            f"{iterations} iterations; allowed are {MIN_SCRAM_ITERATIONS} to {MAX_SCRAM_ITERATIONS}"
        )
    return name_problem(entry.name)


def name_problem(name: str) -> str | None:
    """Return why this is no valid user name; None if it is valid."""
    if not name or len(name.encode("utf-8", "replace")) > MAX_USER_NAME_BYTES:
        return f"a user's name must have 1 to {MAX_USER_NAME_BYTES} bytes"
    if not name.isprintable():
        return "a user's name must be printable"
    return None
