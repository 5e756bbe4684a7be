"""ACLs and their decisions, with Kafka's semantics. No files and no clock.

An ACL allows or denies a principal at a host an operation on a resource. A denying ACL wins.
Without a matching ACL the operation is denied. Some allowed operations imply others: Read, Write,
Delete or Alter imply Describe, and AlterConfigs implies DescribeConfigs.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from itertools import chain, product
from types import MappingProxyType
from typing import Final

from ...protocol.api.security.acl_terms import (
    CLUSTER_NAME,
    EVERYBODY,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    operation_title,
)
from ...values import value_class

_IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = MappingProxyType(
    {
        Operation.DESCRIBE: frozenset(
            {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
        ),
        Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
    }
)


@value_class
class Resource:
    """A resource to which ACLs apply."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        kind = self.type.name.lower()
        return kind if self.type is ResourceType.CLUSTER else f"{kind} {self.name!r}"


CLUSTER: Final = Resource(ResourceType.CLUSTER, CLUSTER_NAME)


@value_class
class Acl:
    """One ACL: it allows or denies a principal at a host an operation on the matching resources."""

    resource_type: ResourceType
    pattern_type: PatternType
    """How `resource_name` is compared: literally, or as a prefix."""
    resource_name: str
    """Name or prefix of the resource; a literal `*` is every resource of the type."""
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        verb = "may" if self.permission is Permission.ALLOW else "may not"
        pattern = ", prefixed" if self.pattern_type is PatternType.PREFIXED else ""
        return (
            f"{self.principal} at {self.host} {verb} {operation_title(self.operation)} "
            f"{self.resource_type.name.lower()} {self.resource_name!r}{pattern}"
        )


class Reason(Enum):
    """Reason of an authorization decision."""

    SUPER_USER = "super user"
    DENIED_BY_RULE = "denied by a rule"
    ALLOWED_BY_RULE = "allowed by a rule"
    NO_RULE = "no rule"


@value_class
class Decision:
    """Result of an authorization check, with its reason."""

    allowed: bool
    reason: Reason
    rule: Acl | None = None
    """ACL that decided; None if none did."""


@lru_cache(1024)
def plain_host(host: str) -> str:
    """Return an address in its canonical spelling; other text is returned unchanged."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)


def covers(acl: Acl, operation: Operation) -> bool:
    """Whether an ACL applies to an operation."""
    if acl.operation in (operation, Operation.ALL):
        return True
    implied_by = _IMPLIED_BY.get(operation, frozenset())
    return acl.permission is Permission.ALLOW and acl.operation in implied_by


def _is_of_all(acl: Acl) -> bool:
    return acl.pattern_type is PatternType.LITERAL and acl.resource_name == WILDCARD


class _Rules:
    """ACLs of one principal at one host, by resource."""

    __slots__ = ("_lengths", "_literal", "_prefixed", "of_type")

    def __init__(self) -> None:
        self.of_type: dict[ResourceType, list[Acl]] = {}
        self._literal: dict[tuple[ResourceType, str], list[Acl]] = {}
        self._prefixed: dict[tuple[ResourceType, str], list[Acl]] = {}
        self._lengths: dict[ResourceType, dict[int, None]] = {}
        """Lengths of the prefixes in ACLs."""

    def add(self, acl: Acl) -> None:
        kind, name = acl.resource_type, acl.resource_name
        self.of_type.setdefault(kind, []).append(acl)
        prefixed = acl.pattern_type is PatternType.PREFIXED
        by_name = self._prefixed if prefixed else self._literal
        by_name.setdefault((kind, name), []).append(acl)
        if prefixed:
            self._lengths.setdefault(kind, {})[len(name)] = None

    def about(self, resource: Resource) -> Iterable[Acl]:
        """Yield the ACLs that match a resource."""
        kind, name = resource.type, resource.name
        yield from self._literal.get((kind, name), ())
        if name != WILDCARD:
            yield from self._literal.get((kind, WILDCARD), ())
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                yield from self._prefixed.get((kind, name[:length]), ())


class AclTable:
    """Immutable table of all ACLs."""

    def __init__(self, acls: Iterable[Acl], super_users: Iterable[str] = ()) -> None:
        self._acls = dict.fromkeys(acls)
        self.acls: Sequence[Acl] = tuple(self._acls)
        self._super_users = frozenset(super_users)
        self._rules: dict[tuple[str, str], _Rules] = {}
        """ACLs by principal and host as written in the ACL. A decision looks at four entries,
        however many principals there are."""
        for acl in self.acls:
            host = acl.host if acl.host == WILDCARD else plain_host(acl.host)
            self._rules.setdefault((acl.principal, host), _Rules()).add(acl)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._acls

    def decide(
        self, principal: str, host: str, operation: Operation, resource: Resource
    ) -> Decision:
        """Decide whether `principal` at `host` may do an operation on a resource."""
        if principal in self._super_users:
            return Decision(True, Reason.SUPER_USER)
        allowing: Acl | None = None
        for acl in chain.from_iterable(each.about(resource) for each in self._of(principal, host)):
            if covers(acl, operation):
                if acl.permission is Permission.DENY:
                    return Decision(False, Reason.DENIED_BY_RULE, acl)
                allowing = allowing or acl
        if allowing is None:
            return Decision(False, Reason.NO_RULE)
        return Decision(True, Reason.ALLOWED_BY_RULE, allowing)

    def decide_all(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether `principal` may do `operation` on every resource of a type, whatever its name."""
        if principal in self._super_users:
            return True
        rules = (each.of_type.get(resource_type, ()) for each in self._of(principal, host))
        found = {
            acl.permission
            for acl in chain.from_iterable(rules)
            if (acl.permission is Permission.DENY or _is_of_all(acl)) and covers(acl, operation)
        }
        return found == {Permission.ALLOW}

    def decide_any(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether a resource of the type could exist on which `principal` may do `operation`.
        Works as Kafka's authorizeByResourceType, which starts with a name that is assumed to be
        unused."""
        unused = Resource(resource_type, "hardcode")
        if self.decide(principal, host, operation, unused).allowed:
            return True
        allowed: list[Acl] = []
        denied: set[tuple[PatternType, str]] = set()
        rules = (each.of_type.get(resource_type, ()) for each in self._of(principal, host))
        for acl in chain.from_iterable(rules):
            if acl.operation in (operation, Operation.ALL):
                if acl.permission is Permission.ALLOW:
                    allowed.append(acl)
                else:
                    denied.add((acl.pattern_type, acl.resource_name))
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        prefixes = {name for pattern, name in denied if pattern is PatternType.PREFIXED}
        lengths = {len(name) for name in prefixes}

        def free(acl: Acl) -> bool:
            name = acl.resource_name
            if acl.pattern_type is PatternType.LITERAL:
                if name == WILDCARD:
                    return True
                if (PatternType.LITERAL, name) in denied:
                    return False
            return not any(name[:length] in prefixes for length in lengths if length <= len(name))

        return any(map(free, allowed))

    def _of(self, principal: str, host: str) -> Sequence[_Rules]:
        """Return the ACLs that apply to a principal at a host."""
        keys = dict.fromkeys(product((principal, EVERYBODY), (plain_host(host), WILDCARD)))
        return [self._rules[key] for key in keys if key in self._rules]
