"""The access rules, as they are decided by: made of the rules that are stored; and decisions about
rights for every request, which are kept as long as the rules hold."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
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
from ...storage.metadata.access_records import (
    IN_RECORD,
    AccessRecord,
    RulesAdded,
    RulesRemoved,
    StoredRule,
)
from .acls import Acl, AclTable, Resource, plain_host

MAX_DECISIONS: Final = 10_000
"""Cached decisions of one principal at one host. The number is bounded because clients choose the
names."""
MAX_REMEMBERED: Final = 1_000
"""Number of (principal, host) pairs with cached decisions."""

RESOURCE_TYPES: Final = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.USER,
)
"""Resource types of ACLs. There are no transactional ids and no delegation tokens."""


class Rights:
    """Decisions for one principal at one host, under one state of the ACLs."""

    __slots__ = (
        "_decided",
        "_decided_any",
        "_decided_of_all",
        "_table",
        "host",
        "principal",
        "readable",
        "short",
        "writable",
    )

    def __init__(self, table: "AclTable", principal: str, host: str) -> None:
        self._table = table
        self.principal = principal
        self.host = host
        self._decided: dict[tuple[Operation, ResourceType, str], bool] = {}
        self._decided_of_all: dict[tuple[Operation, ResourceType], bool] = {}
        self._decided_any: dict[tuple[Operation, ResourceType], bool] = {}
        self.readable: set[str] = set()
        """Topics that the principal may read, according to cached decisions."""
        self.writable: set[str] = set()
        """Topics that the principal may write to, according to cached decisions."""
        self.short: dict[int, Callable[[Any], bool]] = {}
        """Tests of the fast path for frequent requests, by API key."""

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        key = operation, resource_type, name
        known = self._decided.get(key)
        if known is not None:
            return known
        resource = Resource(resource_type, name)
        decision = self._table.decide(self.principal, self.host, operation, resource)
        if len(self._decided) >= MAX_DECISIONS:
            self._decided.clear()
            self.readable.clear()
            self.writable.clear()
        self._decided[key] = decision.allowed
        if decision.allowed and resource_type is ResourceType.TOPIC:
            if operation is Operation.READ:
                self.readable.add(name)
            elif operation is Operation.WRITE:
                self.writable.add(name)
        return decision.allowed

    def may_all(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the principal may do the operation on every resource of the type, whatever its
        name."""
        key = operation, resource_type
        if key not in self._decided_of_all:
            decided = self._table.decide_all(self.principal, self.host, operation, resource_type)
            self._decided_of_all[key] = decided
        return self._decided_of_all[key]

    def may_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether a resource of the type could exist on which the principal may do the
        operation."""
        key = operation, resource_type
        known = self._decided_any.get(key)
        if known is None:
            known = self._table.decide_any(self.principal, self.host, operation, resource_type)
            self._decided_any[key] = known
        return known


class Authorizer:
    """Keeps the decisions for each principal until the ACLs change."""

    def __init__(self, acls: "Acls", refused: Callable[..., None]) -> None:
        self._acls = acls
        self.refused = refused
        """Records a refusal: principal, host, request, operation, resource."""
        self._table = acls.table
        self._rights: dict[tuple[str, str], Rights] = {}

    def rights(self, principal: str, host: str) -> Rights:
        """Return the current rights of a principal at a host."""
        table = self._acls.table
        if table is not self._table:
            self._table = table
            self._forget()
        found = self._rights.get((principal, host))
        if found is None:
            if len(self._rights) >= MAX_REMEMBERED:
                self._forget()
            found = Rights(table, principal, plain_host(host))
            self._rights[principal, host] = found
        return found

    def _forget(self) -> None:
        """Drop all cached rights. Their `short` tests refer back to them, and would stay until
        garbage collection."""
        for rights in self._rights.values():
            rights.short.clear()
        self._rights.clear()


class Acls:
    """ACLs of a running broker. Any thread may read them."""

    def __init__(self, rules: Mapping[StoredRule, None], super_users: Iterable[str] = ()) -> None:
        self._super_users = tuple(super_users)
        self.table = AclTable((), self._super_users)
        """Replaced by a new object at each change."""
        self.use(rules)

    def use(self, rules: Mapping[StoredRule, None]) -> None:
        """Apply these ACLs. May be called in any thread."""
        self.table = AclTable(map(acl_of, rules), self._super_users)

    def plan_adding(self, acls: Sequence[Acl]) -> tuple[set[Acl], list[AccessRecord]]:
        """Return the ACLs that do not exist yet, and the records that add them. Raises
        `InvalidRequest` if there would be too many. May be called in any thread."""
        new = dict.fromkeys(acl for acl in acls if acl not in self.table)
        count = len(self.table.acls) + len(new)
        if count > MAX_ACLS:
            raise InvalidRequest(
                f"there would be {count} rules; allowed are {MAX_ACLS}. Prefixed rules "
                "and * take fewer"
            )
        return set(new), [RulesAdded(part) for part in _parts(list(new))]

    def plan_removing(self, doomed: Callable[[Acl], bool]) -> tuple[list[Acl], list[AccessRecord]]:
        """Return the ACLs to be removed, and the records that remove them. May be called in any
        thread."""
        gone = [acl for acl in self.table.acls if doomed(acl)]
        return gone, [RulesRemoved(part) for part in _parts(gone)]


def _parts(acls: Sequence[Acl]) -> Iterable[Sequence[StoredRule]]:
    for start in range(0, len(acls), IN_RECORD):
        yield [StoredRule(**written(acl)) for acl in acls[start : start + IN_RECORD]]


def problem_of(acl: Acl) -> str | None:
    """Return why this is no valid ACL; None if it is valid."""
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
    """Return why no new ACL can apply to this host; None if one can. Stored ACLs may have such
    hosts."""
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
    """Return an ACL as texts."""
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
        "resource_type": acl.resource_type.name,
        "pattern_type": acl.pattern_type.name,
        "resource_name": acl.resource_name,
    }


def acl_of(rule: StoredRule) -> Acl:
    """Return a stored ACL in the form used for decisions."""
    return Acl(
        resource_type=ResourceType[rule.resource_type],
        pattern_type=PatternType[rule.pattern_type],
        resource_name=rule.resource_name,
        principal=rule.principal,
        host=rule.host,
        operation=Operation[rule.operation],
        permission=Permission[rule.permission],
    )
