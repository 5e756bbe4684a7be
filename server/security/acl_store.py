"""The access rules in force, made from the stored rules; decisions about rights for every request,
which are kept as long as the rules hold; and the filters with which Kafka's tools list and delete
rules."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from ipaddress import ip_address
from itertools import islice
from typing import Any, Final, TypeVar

from ...protocol.api.security.acl_terms import (
    CLUSTER_NAME,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ...protocol.api.security.acls import AclCreation, AclFilter, DescribeAclsRequest
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

E = TypeVar("E", bound=IntEnum)

_ANY: Final = 1

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


def _term(kind: type[E], number: int, what: str) -> E:
    try:
        found = kind(number)
    except ValueError:
        found = None
    if found is None or found == 0:
        known = ", ".join(f"{each.value} {each.name.lower()}" for each in kind if each != 0)
        raise InvalidRequest(f"{what} is {number}; it must be one of: {known}")
    return found


class Filter:
    """Filter of ACLs. Raises `InvalidRequest` for invalid terms."""

    def __init__(self, asked: DescribeAclsRequest | AclFilter) -> None:
        self._type = _term(ResourceType, asked.resource_type, "resource_type")
        self._pattern = _term(PatternType, asked.pattern_type, "pattern_type")
        self._name = asked.resource_name
        self._principal = asked.principal
        self._host = asked.host
        self._operation = _term(Operation, asked.operation, "operation")
        self._permission = _term(Permission, asked.permission_type, "permission_type")

    @property
    def about(self) -> str | None:
        """Resource name that all matching ACLs must apply to (pattern type MATCH); None for other
        pattern types."""
        return self._name if self._pattern is PatternType.MATCH else None

    @property
    def exact(self) -> dict[str, object]:
        """Field values that a matching ACL must have, besides `about`."""
        asked = (
            *(self._type, self._operation, self._permission, self._principal, self._host),
            *((None, None) if self._pattern is PatternType.MATCH else (self._pattern, self._name)),
        )
        pairs = zip(_FIELDS, asked, strict=True)
        return {field: value for field, value in pairs if value not in (None, _ANY)}

    def means(self, acl: Acl) -> bool:
        return (
            self._type in (_ANY, acl.resource_type)
            and self._operation in (_ANY, acl.operation)
            and self._permission in (_ANY, acl.permission)
            and self._principal in (None, acl.principal)
            and self._host in (None, acl.host)
            and self._names(acl)
        )

    def _names(self, acl: Acl) -> bool:
        if self._pattern is PatternType.MATCH:
            if self._name is None:
                return True
            if acl.pattern_type is PatternType.PREFIXED:
                return self._name.startswith(acl.resource_name)
            return acl.resource_name in (self._name, WILDCARD)
        if self._pattern not in (PatternType.ANY, acl.pattern_type):
            return False
        return self._name in (None, acl.resource_name)


_FIELDS: Final = (
    "resource_type",
    "operation",
    "permission",
    "principal",
    "host",
    "pattern_type",
    "resource_name",
)
"""Fields of an ACL that a filter compares, unless the filter leaves them open."""


class Filters:
    """Many filters, applied to one ACL after the other. An ACL is looked up instead of compared
    with each filter."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        self._exact: dict[tuple[str, ...], dict[tuple[object, ...], int]] = {}
        """Number of the first filter by compared fields and their values."""
        self._matching: dict[tuple[str, ...], dict[tuple[object, ...], _Names]] = {}
        """The same for filters that match all ACLs which apply to a name."""
        for number, each in enumerate(filters):
            asked = each.exact
            fields = tuple(asked)
            values = tuple(asked.values())
            if each.about is None:
                self._exact.setdefault(fields, {}).setdefault(values, number)
            else:
                by_values = self._matching.setdefault(fields, {})
                by_values.setdefault(values, _Names()).add(each.about, number)

    def first(self, acl: Acl) -> int | None:
        """Return the number of the first filter that matches an ACL; None if none does."""
        found = [
            by_values.get(tuple([getattr(acl, field) for field in fields]))
            for fields, by_values in self._exact.items()
        ]
        for fields, by_names in self._matching.items():
            names = by_names.get(tuple([getattr(acl, field) for field in fields]))
            found.append(None if names is None else names.first(acl))
        return min((number for number in found if number is not None), default=None)


class _Names:
    """Resource names of filters that match all ACLs which apply to the name."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        """Number of the first filter by name."""
        self._sorted: list[str] = []
        self._by_prefix: dict[str, int | None] = {}

    def add(self, name: str, number: int) -> None:
        self._numbers.setdefault(name, number)

    def first(self, acl: Acl) -> int | None:
        name = acl.resource_name
        if acl.pattern_type is PatternType.PREFIXED:
            if name not in self._by_prefix:
                self._by_prefix[name] = self._first_with(name)
            return self._by_prefix[name]
        if name == WILDCARD:
            return min(self._numbers.values())
        return self._numbers.get(name)

    def _first_with(self, prefix: str) -> int | None:
        if not self._sorted:
            self._sorted = sorted(self._numbers)
        first: int | None = None
        for name in islice(self._sorted, bisect_left(self._sorted, prefix), None):
            if not name.startswith(prefix):
                break
            number = self._numbers[name]
            first = number if first is None else min(first, number)
        return first


def asked_acl(asked: AclCreation) -> Acl:
    """Return the ACL that a request describes. Raises `InvalidRequest` if no such ACL can exist."""
    acl = Acl(
        resource_type=_term(ResourceType, asked.resource_type, "resource_type"),
        pattern_type=_term(PatternType, asked.pattern_type, "pattern_type"),
        resource_name=asked.resource_name,
        principal=asked.principal,
        host=asked.host,
        operation=_term(Operation, asked.operation, "operation"),
        permission=_term(Permission, asked.permission_type, "permission_type"),
    )
    problem = problem_of(acl)
    if problem is not None:
        raise InvalidRequest(problem)
    return acl


def new_acl(asked: AclCreation) -> Acl:
    """Return the ACL to be created. Unlike `asked_acl` it also refuses a host at which no client
    can be."""
    acl = asked_acl(asked)
    problem = problem_of_host(acl.host)
    if problem is not None:
        raise InvalidRequest(problem)
    return acl


def as_creation(acl: Acl) -> AclCreation:
    """Return an ACL in the form of a request."""
    return AclCreation(
        resource_type=int(acl.resource_type),
        resource_name=acl.resource_name,
        pattern_type=int(acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission_type=int(acl.permission),
    )


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
