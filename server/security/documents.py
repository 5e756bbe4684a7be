"""Users, rules and quotas of a single broker: three files of JSON in the data directory, each
replaced as a whole and readable by the broker's account alone.

    users.json   {"format": 1, "decoy_key": BASE64,
                  "users": {NAME: {MECHANISM: {"salt": BASE64, "iterations": N,
                                               "stored_key": BASE64, "server_key": BASE64}}}}
    acls.json    {"format": 1, "acls": [{"principal": "User:alice", "host": "*",
                  "operation": "READ", "permission": "ALLOW", "resource_type": "TOPIC",
                  "pattern_type": "LITERAL", "resource_name": "clicks"}]}
    quotas.json  {"format": 1, "quotas": [{"user": "alice", "client_id": null,
                  "values": {"producer_byte_rate": 1048576.0}}]}

A cluster member keeps them in its metadata log.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

from ...config.broker import BrokerSettings
from ...protocol.errors import StorageError
from ...storage.directory.known_files import ACLS_FILE, QUOTAS_FILE, USERS_FILE
from ...storage.files import Files, SystemFiles, replace_file
from ...storage.metadata.access_records import (
    ACCESS_DECODERS,
    CREDENTIALS,
    DECOY_KEY,
    QUOTAS,
    RULES,
    AccessRecord,
    StoredRule,
)
from ...storage.metadata.access_state import AccessState

FORMAT: Final = 1
FILE_MODE: Final = 0o600
"""Of the files that hold them: they are the broker's account's alone."""

ACCESS_FILES: Final = (USERS_FILE, ACLS_FILE, QUOTAS_FILE)

_REMEDIES: Final = {
    USERS_FILE: "add the users",
    ACLS_FILE: "add the rules",
    QUOTAS_FILE: "set the quotas",
}
_CREDENTIAL: Final = ("salt", "stored_key", "server_key")

R = TypeVar("R")


class AccessDocuments:
    """The three files of a data directory."""

    def __init__(self, files: Files, directory: Path) -> None:
        """Read them. Raises `StorageError` for content that cannot be understood, and `OSError`."""
        self._files = files
        self._directory = directory
        self._changing = Lock()
        self.state = AccessState()
        for name, records in _READERS.items():
            for record in self._read(name, records):
                self.state = self.state.after(record)

    @property
    def exist(self) -> bool:
        return any(self._files.exists(self._directory / name) for name in ACCESS_FILES)

    def change(self, plan: Callable[[], tuple[R, Sequence[AccessRecord]]]) -> R:
        """Make the changes that `plan` gives, durably. Raises `OSError`; then none of one file is
        made. For a thread."""
        with self._changing:
            outcome, records = plan()
            state = self.state
            for record in records:
                state = state.after(record)
            self._write(state)
            return outcome

    def remove(self) -> None:
        """Remove the files, durably: what they held is elsewhere now. Raises `OSError`."""
        for name in ACCESS_FILES:
            if self._files.exists(self._directory / name):
                self._files.unlink(self._directory / name)
        self._files.sync_directory(self._directory)

    def _read(
        self, name: str, records: Callable[[Any], Iterator[AccessRecord]]
    ) -> Sequence[AccessRecord]:
        path = self._directory / name
        if not self._files.exists(path):
            return ()
        content = self._files.read_bytes(path)
        try:
            document = json.loads(content)
            if document["format"] != FORMAT:
                raise ValueError(f"its format is {document['format']!r}, not {FORMAT}")
            return list(records(document))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StorageError(
                f"{path} is broken ({type(error).__name__}: {error}): bring it back from a "
                f"copy, or remove it and {_REMEDIES[name]} anew"
            ) from None

    def _write(self, state: AccessState) -> None:
        before = self.state
        if (state.users, state.decoy_key) != (before.users, before.decoy_key):
            self._replace(USERS_FILE, _users_document(state))
        if list(state.rules) != list(before.rules):
            self._replace(ACLS_FILE, {"acls": [rule._asdict() for rule in state.rules]})
        if state.quotas != before.quotas:
            quotas = [
                {"user": user, "client_id": client_id, "values": values}
                for (user, client_id), values in state.quotas.items()
            ]
            self._replace(QUOTAS_FILE, {"quotas": quotas})
        self.state = state

    def _replace(self, name: str, fields: Mapping[str, object]) -> None:
        document = {"format": FORMAT, **fields}
        content = json.dumps(document, indent=1).encode() + b"\n"
        replace_file(self._files, self._directory / name, content)


def access_documents(files: Files, settings: BrokerSettings) -> AccessDocuments:
    """The files of a broker. Raises `StorageError`, `OSError`."""
    if isinstance(files, SystemFiles):
        files = SystemFiles(FILE_MODE)
    return AccessDocuments(files, settings.data_dir)


def _users_document(state: AccessState) -> dict[str, object]:
    users = {
        user: {
            mechanism: {"iterations": each.iterations}
            | {part: b64encode(getattr(each, part)).decode() for part in _CREDENTIAL}
            for mechanism, each in held.items()
        }
        for user, held in sorted(state.users.items())
    }
    return {"decoy_key": b64encode(state.decoy_key).decode(), "users": users}


def _users_records(document: Any) -> Iterator[AccessRecord]:
    key = b64decode(document["decoy_key"], validate=True)
    if key:
        yield ACCESS_DECODERS[DECOY_KEY](key)
    changes = []
    for user, held in document["users"].items():
        for mechanism, written in held.items():
            salt, stored, server = (b64decode(written[p], validate=True) for p in _CREDENTIAL)
            changes.append([user, mechanism, salt, written["iterations"], stored, server])
    yield ACCESS_DECODERS[CREDENTIALS](changes)


def _rules_records(document: Any) -> Iterator[AccessRecord]:
    rules = [[rule[part] for part in StoredRule._fields] for rule in document["acls"]]
    yield ACCESS_DECODERS[RULES](rules)


def _quotas_records(document: Any) -> Iterator[AccessRecord]:
    changes = [
        [each["user"], each["client_id"], {name: float(v) for name, v in each["values"].items()}]
        for each in document["quotas"]
    ]
    yield ACCESS_DECODERS[QUOTAS](changes)


_READERS: Final[Mapping[str, Callable[[Any], Iterator[AccessRecord]]]] = {
    USERS_FILE: _users_records,
    ACLS_FILE: _rules_records,
    QUOTAS_FILE: _quotas_records,
}
