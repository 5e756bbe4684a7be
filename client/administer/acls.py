"""The access rules of a broker or a Kafka cluster."""

from collections.abc import Sequence

from ...protocol.api.security.acls import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    AclCreation,
    AclFilter,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from ...protocol.errors import CodedError
from ..cluster.targets import Some
from ..responses import check
from .admin import Admin

ANY: AclFilter = AclFilter(
    resource_type=1,
    resource_name=None,
    pattern_type=1,
    principal=None,
    host=None,
    operation=1,
    permission_type=1,
)
"""Means every rule."""


class AclAdmin(Admin):
    """Lists, adds and takes away rules.

    What the server refuses is raised as the error class of its code, with its words.
    """

    async def acls(self) -> list[AclCreation]:
        """Every rule."""
        request = DescribeAclsRequest(
            resource_type=ANY.resource_type,
            resource_name=None,
            pattern_type=ANY.pattern_type,
            principal=None,
            host=None,
            operation=ANY.operation,
            permission_type=ANY.permission_type,
        )
        response: DescribeAclsResponse = await self._cluster.request(
            DESCRIBE_ACLS, request, to=Some.CONTROLLER
        )
        check(response)
        return [
            AclCreation(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                pattern_type=resource.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for resource in response.resources
            for acl in resource.acls
        ]

    async def add_acls(self, acls: Sequence[AclCreation]) -> None:
        response: CreateAclsResponse = await self._cluster.request(
            CREATE_ACLS, CreateAclsRequest(creations=list(acls)), to=Some.CONTROLLER
        )
        for result in response.results:
            check(result)

    async def remove_acls(self, filters: Sequence[AclFilter]) -> list[AclCreation]:
        """Those that are gone."""
        response: DeleteAclsResponse = await self._cluster.request(
            DELETE_ACLS, DeleteAclsRequest(filters=list(filters)), to=Some.CONTROLLER
        )
        gone = []
        for result in response.filter_results:
            check(result)
            for acl in result.matching_acls:
                check(acl)
                gone.append(
                    AclCreation(
                        resource_type=acl.resource_type,
                        resource_name=acl.resource_name,
                        pattern_type=acl.pattern_type,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                )
        return gone

    async def authorization(self) -> tuple[str, str] | None:
        """Whether rights are looked at, and the super users; `None` when that is not known."""
        try:
            found = {each.name: each.value for each in await self.broker_settings()}
        except CodedError:
            return None
        if "authorization" not in found:
            return None
        return str(found["authorization"]), str(found.get("super.users", ""))
