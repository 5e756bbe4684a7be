"""describe-acls, create-acls and delete-acls. What needs the rules imports them when it is asked:
most brokers have none."""

from typing import TYPE_CHECKING

from ...protocol.api.security.acls import (
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
from ...protocol.errors import CodedError
from ..outcomes import error_name
from .base import Call, Later, Services

if TYPE_CHECKING:
    from ..security.acl_filters import Filter
    from ..security.acls import Acl


def describe(services: Services, request: DescribeAclsRequest, call: Call) -> DescribeAclsResponse:
    from ..security.acl_filters import Filter

    wanted = Filter(request)
    resources: dict[tuple[int, int, str], DescribedAcls] = {}
    for acl in services.security.acls.table.acls:
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


def create(services: Services, request: CreateAclsRequest, call: Call) -> Later:
    """Those that can be rules, in one write; beside each of the others stands why not."""
    from ..security.acl_filters import new_acl

    results: list[AclCreationResult] = []
    wanted: list[tuple[Acl, AclCreationResult]] = []
    for asked in request.creations:
        result = AclCreationResult()
        try:
            wanted.append((new_acl(asked), result))
        except CodedError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    acls = services.security.acls
    ready = services.work.in_storage_thread(lambda: acls.add([acl for acl, _ in wanted]))

    def answer() -> CreateAclsResponse:
        error = ready.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
        for acl, result in wanted:
            if error is not None:
                outcome = services.outcomes.of(error, api="create-acls")
                result.error_code, result.error_message = outcome
            _audit(services, call, acl, "added", result.error_code)
        return CreateAclsResponse(results=results)

    return Later(ready, answer, alone=True)


def delete(services: Services, request: DeleteAclsRequest, call: Call) -> Later:
    """What any of the filters means, in one write."""
    from ..security.acl_filters import Filter

    filters: list[Filter | CodedError] = []
    for asked in request.filters:
        try:
            filters.append(Filter(asked))
        except CodedError as error:
            filters.append(error)
    good = [each for each in filters if not isinstance(each, CodedError)]
    acls = services.security.acls
    ready = services.work.in_storage_thread(
        lambda: acls.remove(lambda acl: any(each.means(acl) for each in good))
    )

    def answer() -> DeleteAclsResponse:
        gone = ready.result()
        for acl in gone:
            _audit(services, call, acl, "removed", 0)
        return DeleteAclsResponse(filter_results=[_filtered(each, gone) for each in filters])

    return Later(ready, answer, alone=True)


def _filtered(wanted: "Filter | CodedError", gone: "list[Acl]") -> AclFilterResult:
    if isinstance(wanted, CodedError):
        return AclFilterResult(error_code=wanted.code, error_message=wanted.message)
    return AclFilterResult(
        matching_acls=[
            DeletedAcl(
                resource_type=int(acl.resource_type),
                resource_name=acl.resource_name,
                pattern_type=int(acl.pattern_type),
                principal=acl.principal,
                host=acl.host,
                operation=int(acl.operation),
                permission_type=int(acl.permission),
            )
            for acl in gone
            if wanted.means(acl)
        ]
    )


def _audit(services: Services, call: Call, acl: "Acl", change: str, code: int) -> None:
    services.security.audit.changed(
        "acl_changed",
        str(acl),
        call.principal,
        call.client_host,
        error_name(code) if code else "done",
        change=change,
    )
