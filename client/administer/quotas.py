"""The client quotas of a broker or a Kafka cluster."""

from collections.abc import Sequence

from ...protocol.api.security.client_quotas import (
    ALTER_CLIENT_QUOTAS,
    DESCRIBE_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaAlteration,
    QuotaEntry,
)
from ..cluster.targets import Some
from ..responses import check
from .admin import Admin


class QuotaAdmin(Admin):
    """Lists, sets and takes away quotas.

    What the server refuses is raised as the error class of its code, with its words.
    """

    async def quotas(self) -> list[QuotaEntry]:
        """Every quota, by the user or client, or both, whose it is."""
        response: DescribeClientQuotasResponse = await self._cluster.request(
            DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest(components=[]), to=Some.CONTROLLER
        )
        check(response)
        return list(response.entries or ())

    async def alter_quotas(self, alterations: Sequence[QuotaAlteration]) -> None:
        """Set quotas, or take them away."""
        request = AlterClientQuotasRequest(entries=list(alterations), validate_only=False)
        response: AlterClientQuotasResponse = await self._cluster.request(
            ALTER_CLIENT_QUOTAS, request, to=Some.CONTROLLER
        )
        for result in response.entries:
            check(result)
