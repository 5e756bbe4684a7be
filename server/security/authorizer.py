"""Decisions about rights, for every request: rules, and what was decided by those that hold now."""

from collections.abc import Callable
from typing import Any, Final

from ...protocol.api.security.acl_terms import Operation, ResourceType
from .acl_store import Acls
from .acls import AclTable, Resource, plain_host

MAX_DECISIONS: Final = 10_000
"""Kept of one principal at one host; a name is what a client makes up."""
MAX_REMEMBERED: Final = 1_000
"""Principals at hosts whose decisions are kept."""


class Rights:
    """What one principal at one host may do, by one state of the rules."""

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

    def __init__(self, table: AclTable, principal: str, host: str) -> None:
        self._table = table
        self.principal = principal
        self.host = host
        self._decided: dict[tuple[Operation, ResourceType, str], bool] = {}
        self._decided_of_all: dict[tuple[Operation, ResourceType], bool] = {}
        self._decided_any: dict[tuple[Operation, ResourceType], bool] = {}
        self.readable: set[str] = set()
        """Topics of which it was decided that they may be read."""
        self.writable: set[str] = set()
        """Topics of which it was decided that they may be written to."""
        self.short: dict[int, Callable[[Any], bool]] = {}
        """By api key: what was made of these rights to look at requests that are often."""

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
        """Whether it may do that to every resource, whatever its name."""
        key = operation, resource_type
        if key not in self._decided_of_all:
            decided = self._table.decide_all(self.principal, self.host, operation, resource_type)
            self._decided_of_all[key] = decided
        return self._decided_of_all[key]

    def may_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there can be a resource to which it may do that."""
        key = operation, resource_type
        known = self._decided_any.get(key)
        if known is None:
            known = self._table.decide_any(self.principal, self.host, operation, resource_type)
            self._decided_any[key] = known
        return known


class Authorizer:
    """Keeps the decisions for each principal while the rules are the same."""

    def __init__(self, acls: Acls, refused: Callable[..., None]) -> None:
        self._acls = acls
        self.refused = refused
        """Takes what was refused: principal, host, request, operation, resource type, name."""
        self._table = acls.table
        self._rights: dict[tuple[str, str], Rights] = {}

    def rights(self, principal: str, host: str) -> Rights:
        """What a principal may do now."""
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
        """What is kept of rights refers to them, and would stay until garbage is looked for."""
        for rights in self._rights.values():
            rights.short.clear()
        self._rights.clear()
