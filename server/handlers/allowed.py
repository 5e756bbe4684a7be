"""What a client may do with a resource, for answers that say so."""

from collections.abc import Iterable

from ...protocol.api.operations import bits
from ...protocol.api.security.acl_terms import Operation, ResourceType
from ..requests import Call
from .base import Services


def allowed_bits(
    services: Services,
    call: Call,
    kind: ResourceType,
    name: str,
    operations: Iterable[Operation],
) -> int:
    """Those of `operations` that the client of a request may do; all of them where rights are not
    looked at."""
    if not services.security.authorization:
        return bits(operations)
    rights = services.security.authorizer.rights(call.principal, call.client_host)
    return bits(each for each in operations if rights.may(each, kind, name))
