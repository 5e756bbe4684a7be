"""Generator of `docs/security/rights.md`: `python -m horolog.server.rights.reference`."""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from ...protocol.api.registry import APIS
from ...protocol.api.rights import How, Need, Right, When
from ...protocol.api.schema import Api
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
from ..security.acls import Acl, AclTable, Resource

_TYPES: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)

_OPERATIONS: Final = tuple(
    each for each in Operation if each not in (Operation.UNKNOWN, Operation.ANY)
)

_CODES: Final = {ResourceType.TOPIC: 29, ResourceType.GROUP: 30, ResourceType.CLUSTER: 31}

_INTRODUCTION: Final = """\
# Rights

Generated from the declarations in `protocol/api/` by `make docs`.

The rights that each request needs, in Kafka's protocol and in the native one, with
`authorization=on`. [Guarding a broker](guarding.md) says how to give rights. A request needs all
its rows, as far as their condition applies; of several rights in a row, one is enough. Errors are
29 for a topic, 30 for a group and 31 for the cluster. They do not tell whether the topic or group
exists.

| request | right | condition | without it |
|---|---|---|---|"""

_MATRIX: Final = """
## Which single rights are enough

The rights, on what the request names, each of which lets it through by itself. Who may Read, Write,
Delete or Alter may Describe; AlterConfigs has DescribeConfigs in it, and All has every operation.

| request | on the topic | on the group | on the cluster |
|---|---|---|---|"""


def lines() -> Iterator[str]:
    """Yield the lines of the page."""
    yield _INTRODUCTION
    for api in sorted(APIS.values(), key=lambda each: each.key):
        yield from _rows(api)
    yield _MATRIX
    for api in sorted(APIS.values(), key=lambda each: each.key):
        cells = (_enough(api.rights, kind) for kind in _TYPES)
        yield f"| {api.name} | {' | '.join(cells)} |"


def _rows(api: Api) -> Iterator[str]:
    if not api.rights:
        yield f"| {api.name} | none | | |"
    for number, need in enumerate(api.rights):
        rights = " or ".join(map(_right, need.any_of))
        name = "" if number else api.name
        code = _CODES[need.any_of[0].resource_type]
        how = need.how if need.how is How.LEFT_OUT else f"{need.how} ({code})"
        yield f"| {name} | {rights} | {need.when} | {how} |"


def _right(right: Right) -> str:
    kind = right.resource_type.name.lower()
    which = "some" if right.some else "the"
    return f"{operation_title(right.operation)} on {which} {kind}"


def _enough(needs: Sequence[Need], kind: ResourceType) -> str:
    found = [operation_title(each) for each in _OPERATIONS if is_enough(needs, each, kind)]
    if len(found) == len(_OPERATIONS):
        return "needs none"
    return ", ".join(found)


def is_enough(needs: Sequence[Need], operation: Operation, kind: ResourceType) -> bool:
    """Whether one ACL, for all resources of a type, meets every need of the usual requests: those
    of a consumer, about existing topics and, where there is a choice, about topic settings."""
    usual = [need for need in needs if need.when not in (When.MADE, When.FOLLOWER, When.OF_BROKER)]
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else WILDCARD
    rule = Acl(kind, PatternType.LITERAL, name, EVERYBODY, WILDCARD, operation, Permission.ALLOW)
    table = AclTable([rule])

    def has(right: Right) -> bool:
        asked = CLUSTER_NAME if right.resource_type is ResourceType.CLUSTER else "x"
        resource = Resource(right.resource_type, asked)
        return table.decide("User:x", "", right.operation, resource).allowed

    named = [need for need in usual if need.when is not When.NOT_NAMED]
    return all(any(map(has, need.any_of)) for need in named or usual)


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines())
