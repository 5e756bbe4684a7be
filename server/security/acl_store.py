"""The rules in a file: `acls.json` in the data directory.

    {"format": 1,
     "acls": [{"principal": "User:alice", "host": "*", "operation": "READ", "permission": "ALLOW",
               "resource_type": "TOPIC", "pattern_type": "LITERAL", "resource_name": "clicks"}]}

It is replaced as a whole and readable by the broker's account alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from threading import Lock
from typing import Any, Final

from ...protocol.api.security.acl_terms import (
    CLUSTER_NAME,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ...protocol.errors import InvalidRequest
from ...protocol.limits import MAX_ACL_TEXT_BYTES, MAX_ACLS
from ...storage.directory.known_files import ACLS_FILE
from ...storage.files import Files
from .acls import Acl, AclTable
from .documents import Document

RESOURCE_TYPES: Final = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.USER,
)
"""Those that a rule may be about. There are no transactions and no tokens."""


class Acls:
    """The rules as they are now. They may be read while another thread changes them."""

    def __init__(self, files: Files, data_dir: Path, super_users: Iterable[str] = ()) -> None:
        """Raises `StorageError` for a file that cannot be understood, and `OSError`."""
        self._document = Document(files, data_dir / ACLS_FILE, "add the rules")
        self._super_users = tuple(super_users)
        self._changing = Lock()
        self.table = AclTable(self._document.read(_acls) or (), self._super_users)
        """Another object after each change."""

    def add(self, acls: Sequence[Acl]) -> set[Acl]:
        """Add rules, in one write, and say which there were not before. Raises `InvalidRequest`
        when there would be too many, and `OSError`; then nothing has changed. For a thread."""
        with self._changing:
            new = set(acls).difference(self.table.acls)
            wanted = dict.fromkeys((*self.table.acls, *acls))
            if len(wanted) > MAX_ACLS:
                raise InvalidRequest(
                    f"there would be {len(wanted)} rules; allowed are {MAX_ACLS}. Prefixed rules "
                    "and * take fewer"
                )
            self._replace(list(wanted))
            return new

    def remove(self, doomed: Callable[[Acl], bool]) -> list[Acl]:
        """Take rules away, in one write, and say which. Raises `OSError`. For a thread."""
        with self._changing:
            gone = [acl for acl in self.table.acls if doomed(acl)]
            if gone:
                kept = set(self.table.acls) - set(gone)
                self._replace([acl for acl in self.table.acls if acl in kept])
            return gone

    def _replace(self, acls: Sequence[Acl]) -> None:
        if list(self.table.acls) == list(acls):
            return
        self._document.write(acls=[written(acl) for acl in acls])
        self.table = AclTable(acls, self._super_users)


def problem_of(acl: Acl) -> str | None:
    """Why there can be no such rule, if there can be none."""
    if acl.resource_type not in RESOURCE_TYPES:
        known = ", ".join(each.name.lower() for each in RESOURCE_TYPES)
        return f"a rule cannot be about {acl.resource_type.name.lower()}; it may be about: {known}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"the pattern is {acl.pattern_type.name.lower()}; it must be literal or prefixed"
    if acl.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"the operation is {acl.operation.name.lower()}, which no rule can be about"
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        return f"the permission is {acl.permission.name.lower()}; it must be allow or deny"
    kind, colon, name = acl.principal.partition(":")
    if not (kind and colon and name):
        return f"the principal is {acl.principal[:100]!r}; write it as User:NAME, or User:*"
    for what, text in (("name", acl.resource_name), ("host", acl.host), ("user", acl.principal)):
        size = len(text.encode("utf-8", "replace"))
        if not 1 <= size <= MAX_ACL_TEXT_BYTES or not text.isprintable():
            return f"the {what} has {size} bytes; allowed are 1 to {MAX_ACL_TEXT_BYTES}, printable"
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"the cluster is {acl.resource_name[:100]!r}; it must be {CLUSTER_NAME!r}"
    return None


def problem_of_host(host: str) -> str | None:
    """Why no new rule can be about clients at this host; rules that are stored may be."""
    if host == WILDCARD:
        return None
    try:
        ip_address(host)
    except ValueError:
        return (
            f"the host is {host[:100]!r}, which is no IP address and not *: rules go by the "
            "addresses of clients, not by their names"
        )
    return None


def written(acl: Acl) -> dict[str, str]:
    """A rule as texts."""
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
        "resource_type": acl.resource_type.name,
        "pattern_type": acl.pattern_type.name,
        "resource_name": acl.resource_name,
    }


def _acls(document: Mapping[str, Any]) -> list[Acl]:
    return [_acl(each) for each in document["acls"]]


def _acl(found: Mapping[str, Any]) -> Acl:
    acl = Acl(
        resource_type=ResourceType[found["resource_type"]],
        pattern_type=PatternType[found["pattern_type"]],
        resource_name=str(found["resource_name"]),
        principal=str(found["principal"]),
        host=str(found["host"]),
        operation=Operation[found["operation"]],
        permission=Permission[found["permission"]],
    )
    problem = problem_of(acl)
    if problem is not None:
        raise ValueError(problem)
    return acl
