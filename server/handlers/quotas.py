"""describe-client-quotas and alter-client-quotas. What needs the quotas imports them when it is
asked: most brokers have none."""

from typing import TYPE_CHECKING

from ...protocol.api.security.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaAlterationResult,
    QuotaEntityPart,
)
from ...protocol.errors import CodedError
from ..outcomes import error_name
from .base import Call, Later, Services

if TYPE_CHECKING:
    from ..quotas.store import QuotaChange


def describe(
    services: Services, request: DescribeClientQuotasRequest, call: Call
) -> DescribeClientQuotasResponse:
    from ..quotas.asked import Filter, entry_of

    wanted = Filter(request)
    quotas = services.security.quotas.table.quotas
    return DescribeClientQuotasResponse(
        entries=[
            entry_of(entity, values) for entity, values in quotas.items() if wanted.means(entity)
        ]
    )


def alter(services: Services, request: AlterClientQuotasRequest, call: Call) -> Later:
    """Those that can be made, in one write; beside each of the others stands why not."""
    from ..quotas.asked import asked_change

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
    quotas = services.security.quotas
    changes = [change for change, _ in wanted]
    ready = services.work.in_storage_thread(
        lambda: quotas.change(changes, validate_only=request.validate_only)
    )

    def answer() -> AlterClientQuotasResponse:
        failure = ready.exception()
        if failure is not None and not isinstance(failure, Exception):
            raise failure
        outcomes = [failure] * len(wanted) if failure is not None else ready.result()
        for (change, result), error in zip(wanted, outcomes, strict=True):
            if error is not None:
                outcome = services.outcomes.of(error, api="alter-client-quotas")
                result.error_code, result.error_message = outcome
            if not request.validate_only:
                _audit(services, call, change, result.error_code)
        if not request.validate_only:
            services.security.quotas_changed()
        return AlterClientQuotasResponse(entries=results)

    return Later(ready, answer, alone=True)


def _audit(services: Services, call: Call, change: "QuotaChange", code: int) -> None:
    values = (
        f"{quota.value} removed" if value is None else f"{quota.value}={value:g}"
        for quota, value in change.values.items()
    )
    services.security.audit.changed(
        "quota_changed",
        str(change.entity),
        call.principal,
        call.client_host,
        error_name(code) if code else "done",
        change=", ".join(values),
    )
