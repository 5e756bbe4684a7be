"""Filters of rules, as Kafka's tools ask for rules to see or to take away."""

from enum import IntEnum
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
    """Which rules are meant. Raises `InvalidRequest` when the terms are none."""

    def __init__(self, asked: DescribeAclsRequest | AclFilter) -> None:
        self._type = _term(ResourceType, asked.resource_type, "resource_type")
        self._pattern = _term(PatternType, asked.pattern_type, "pattern_type")
        self._name = asked.resource_name
        self._principal = asked.principal
        self._host = asked.host
        self._operation = _term(Operation, asked.operation, "operation")
        self._permission = _term(Permission, asked.permission_type, "permission_type")

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


def asked_acl(asked: AclCreation) -> Acl:
    """The rule that a request asks for. Raises `InvalidRequest` when there can be no such one."""
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
    """As `asked_acl`, for a rule that is to be added: a client has to be able to be at its host."""
    acl = asked_acl(asked)
    problem = problem_of_host(acl.host)
    if problem is not None:
        raise InvalidRequest(problem)
    return acl


def as_creation(acl: Acl) -> AclCreation:
    """The request's way to say a rule."""
    return AclCreation(
        resource_type=int(acl.resource_type),
        resource_name=acl.resource_name,
        pattern_type=int(acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission_type=int(acl.permission),
    )
