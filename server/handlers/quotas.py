"""describe-client-quotas and alter-client-quotas.

Imports of quotas stand in functions: most brokers have none.

describe-client-quotas (key 48): versions 0 to 1, native 0 to 1 (KIP-546)
     1  compact encoding (KIP-482)
alter-client-quotas (key 49): versions 0 to 1, native 0 to 1 (KIP-546)
     1  compact encoding (KIP-482)

Left out: quotas by IP address (KIP-612).
"""

from collections.abc import Sequence

from ...protocol.api.pieces import Pieces
from ...protocol.api.security.client_quotas import (
    ALTER_CLIENT_QUOTAS,
    DESCRIBE_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaAlterationResult,
    QuotaEntityPart,
    QuotaEntry,
)
from ...protocol.errors import CodedError
from ..outcomes import error_name
from ..quotas.rules import QuotaChange
from ..requests import Call, PendingAnswer, in_turns
from ..security.audit import DONE
from .base import Services
from .registration import handles


@handles(DESCRIBE_CLIENT_QUOTAS)
def describe(
    services: Services, request: DescribeClientQuotasRequest, call: Call
) -> DescribeClientQuotasResponse | PendingAnswer:
    return in_turns(services.work, _describing(services, request))


def _describing(
    services: Services, request: DescribeClientQuotasRequest
) -> Pieces[DescribeClientQuotasResponse]:
    from ..quotas.rules import QuotaFilter, entry_of

    wanted = QuotaFilter(request)
    entries: list[QuotaEntry] = []
    for entity, values in services.security.quotas.table.quotas.items():
        if wanted.means(entity):
            entries.append(entry_of(entity, values))
        yield
    return DescribeClientQuotasResponse(entries=entries)


@handles(ALTER_CLIENT_QUOTAS)
def alter(
    services: Services, request: AlterClientQuotasRequest, call: Call
) -> AlterClientQuotasResponse | PendingAnswer:
    """Make the valid changes, all at once; each invalid change gets an error."""
    return in_turns(services.work, _altering(services, request, call))


def _altering(
    services: Services, request: AlterClientQuotasRequest, call: Call
) -> Pieces[PendingAnswer]:
    from ..quotas.rules import asked_change

    results: list[QuotaAlterationResult] = []
    wanted: list[tuple[QuotaChange, QuotaAlterationResult]] = []
    for asked in request.entries:
        parts = [
            QuotaEntityPart(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in asked.entity
        ]
        result = QuotaAlterationResult(entity=parts)
        try:
            wanted.append((asked_change(asked), result))
        except CodedError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
        yield
    quotas = services.security.quotas
    changes = [change for change, _ in wanted]
    ready = services.metadata.change_access(
        lambda: quotas.planned(changes, validate_only=request.validate_only)
    )

    def answering() -> Pieces[AlterClientQuotasResponse]:
        failure = ready.exception()
        if failure is not None and not isinstance(failure, Exception):
            raise failure
        outcomes: Sequence[Exception | bool]
        outcomes = [failure] * len(wanted) if failure is not None else ready.result()
        for (change, result), outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, Exception):
                refused = services.outcomes.of(outcome, api="alter-client-quotas")
                result.error_code, result.error_message = refused
            if outcome is not False and not request.validate_only:
                _audit(services, call, change, result.error_code)
            yield
        return AlterClientQuotasResponse(entries=results)

    return PendingAnswer(ready, lambda: in_turns(services.work, answering()), alone=True)


def _audit(services: Services, call: Call, change: QuotaChange, code: int) -> None:
    values = (
        f"{quota.value} removed" if value is None else f"{quota.value}={value:g}"
        for quota, value in change.values.items()
    )
    services.security.audit.changed(
        "quota_changed",
        str(change.entity),
        call.principal,
        call.client_host,
        error_name(code) if code else DONE,
        change=", ".join(values),
    )
