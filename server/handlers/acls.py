"""describe-acls, create-acls and delete-acls.

Imports of access rules stand in functions: most brokers have no rules.

describe-acls (key 29): versions 0 to 1, native 0 to 1 (KIP-140)
     1  pattern types (KIP-290)
create-acls (key 30): versions 0 to 1, native 0 to 1 (KIP-140)
     1  pattern types (KIP-290)
delete-acls (key 31): versions 0 to 1, native 0 to 1 (KIP-140)
     1  pattern types (KIP-290)

Left out: rules for transactional ids, delegation tokens and users.
"""

from collections.abc import Sequence

from ...protocol.api.pieces import Pieces
from ...protocol.api.security.acls import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    AclCreationResult,
    AclDescription,
    AclFilterResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeletedAcl,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribedAcls,
)
from ...protocol.errors import CodedError, SecurityDisabled
from ...storage.metadata.access_records import AccessRecord
from ..outcomes import error_name
from ..requests import Call, PendingAnswer, in_turns
from ..security.acls import Acl
from ..security.audit import DONE
from .base import Services
from .registration import handles


def _disabled(services: Services) -> SecurityDisabled | None:
    """Return Kafka's error for a broker without authorization; `None` with authorization."""
    if services.security.authorization:
        return None
    return SecurityDisabled(
        "authorization is off, so rules mean nothing here: set authorization=on and restart the "
        "broker; `horolog acl` changes the rules in its data directory while it is stopped"
    )


@handles(DESCRIBE_ACLS)
def describe(
    services: Services, request: DescribeAclsRequest, call: Call
) -> DescribeAclsResponse | PendingAnswer:
    error = _disabled(services)
    if error is not None:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    return in_turns(services.work, _describing(services, request))


def _describing(services: Services, request: DescribeAclsRequest) -> Pieces[DescribeAclsResponse]:
    from ..security.acl_store import Filter

    wanted = Filter(request)
    resources: dict[tuple[int, int, str], DescribedAcls] = {}
    for acl in services.security.acls.table.acls:
        yield
        if not wanted.means(acl):
            continue
        key = acl.resource_type, acl.pattern_type, acl.resource_name
        if key not in resources:
            resources[key] = DescribedAcls(
                resource_type=int(acl.resource_type),
                resource_name=acl.resource_name,
                pattern_type=int(acl.pattern_type),
                acls=[],
            )
        resources[key].acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=int(acl.operation),
                permission_type=int(acl.permission),
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))


@handles(CREATE_ACLS)
def create(
    services: Services, request: CreateAclsRequest, call: Call
) -> CreateAclsResponse | PendingAnswer:
    """Add the valid rules, all at once; each invalid rule gets an error."""
    error = _disabled(services)
    if error is not None:
        refused = AclCreationResult(error_code=error.code, error_message=error.message)
        return CreateAclsResponse(results=[refused] * len(request.creations))
    return in_turns(services.work, _creating(services, request, call))


def _creating(services: Services, request: CreateAclsRequest, call: Call) -> Pieces[PendingAnswer]:
    from ..security.acl_store import new_acl

    results: list[AclCreationResult] = []
    wanted: list[tuple[Acl, AclCreationResult]] = []
    for asked in request.creations:
        result = AclCreationResult()
        try:
            wanted.append((new_acl(asked), result))
        except CodedError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
        yield
    acls = services.security.acls
    added = [acl for acl, _ in wanted]
    ready = services.metadata.change_access(lambda: acls.plan_adding(added))

    def answering() -> Pieces[CreateAclsResponse]:
        error = ready.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
        # Rules that existed already are not audited, because nothing changed.
        new = None if error is not None else ready.result()
        for acl, result in wanted:
            if error is not None:
                outcome = services.outcomes.of(error, api="create-acls")
                result.error_code, result.error_message = outcome
            if new is None or acl in new:
                _audit(services, call, acl, "added", result.error_code)
            if new is not None:
                new.discard(acl)
            yield
        return CreateAclsResponse(results=results)

    return PendingAnswer(ready, lambda: in_turns(services.work, answering()), alone=True)


@handles(DELETE_ACLS)
def delete(
    services: Services, request: DeleteAclsRequest, call: Call
) -> DeleteAclsResponse | PendingAnswer:
    """Remove the rules that match any filter, all at once. A removed rule is listed at the first
    filter that it matches."""
    error = _disabled(services)
    if error is not None:
        refused = AclFilterResult(error_code=error.code, error_message=error.message)
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    return in_turns(services.work, _deleting(services, request, call))


def _deleting(services: Services, request: DeleteAclsRequest, call: Call) -> Pieces[PendingAnswer]:
    from ..security.acl_store import Filter, Filters

    results: list[AclFilterResult] = []
    good: list[tuple[Filter, AclFilterResult]] = []
    for asked in request.filters:
        result = AclFilterResult()
        try:
            good.append((Filter(asked), result))
        except CodedError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
        yield
    filters, acls = [each for each, _ in good], services.security.acls

    def plan() -> tuple[list[tuple[Acl, int]], Sequence[AccessRecord]]:
        first = Filters(filters).first
        gone, records = acls.plan_removing(lambda acl: first(acl) is not None)
        return [(acl, number) for acl in gone if (number := first(acl)) is not None], records

    ready = services.metadata.change_access(plan)

    def answering() -> Pieces[DeleteAclsResponse]:
        for acl, number in ready.result():
            good[number][1].matching_acls.append(_deleted(acl))
            _audit(services, call, acl, "removed", 0)
            yield
        return DeleteAclsResponse(filter_results=results)

    return PendingAnswer(ready, lambda: in_turns(services.work, answering()), alone=True)


def _deleted(acl: Acl) -> DeletedAcl:
    return DeletedAcl(
        resource_type=int(acl.resource_type),
        resource_name=acl.resource_name,
        pattern_type=int(acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission_type=int(acl.permission),
    )


def _audit(services: Services, call: Call, acl: Acl, change: str, code: int) -> None:
    services.security.audit.changed(
        "acl_changed",
        str(acl),
        call.principal,
        call.client_host,
        error_name(code) if code else DONE,
        change=change,
    )
