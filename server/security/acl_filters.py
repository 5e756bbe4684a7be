"""ACL filters, with which Kafka's tools list and delete ACLs."""

from bisect import bisect_left
from collections.abc import Sequence
from enum import IntEnum
from itertools import islice
from typing import Final, TypeVar

from ...protocol.api.security.acl_terms import (
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ...protocol.api.security.acls import AclCreation, AclFilter, DescribeAclsRequest
from ...protocol.errors import InvalidRequest
from .acl_store import problem_of, problem_of_host
from .acls import Acl

E = TypeVar("E", bound=IntEnum)

_ANY: Final = 1


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
