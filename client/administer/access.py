"""The users of a broker or a Kafka cluster, as they log in with SCRAM; its access rules; its
quotas."""

from collections.abc import Mapping, Sequence

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
from ...protocol.api.security.scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramDeletion,
    ScramUpsertion,
)
from ...protocol.errors import CodedError
from ..client import Client
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
"""Filter that matches every ACL."""


class QuotaAdmin(Admin):
    """Lists, sets and removes quotas.

    An error of the server is raised as the error class of its code, with the server's message.
    """

    async def quotas(self) -> list[QuotaEntry]:
        """Return all quotas, each with the user, client id or both to which it applies."""
        response: DescribeClientQuotasResponse = await self._cluster.request(
            DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest(components=[]), to=Some.CONTROLLER
        )
        check(response)
        return list(response.entries or ())

    async def alter_quotas(self, alterations: Sequence[QuotaAlteration]) -> None:
        """Set or remove quotas."""
        request = AlterClientQuotasRequest(entries=list(alterations), validate_only=False)
        response: AlterClientQuotasResponse = await self._cluster.request(
            ALTER_CLIENT_QUOTAS, request, to=Some.CONTROLLER
        )
        for result in response.entries:
            check(result)


class UserAdmin(Client):
    """Lists users, and sets and removes their passwords.

    Passwords are salted and hashed in the client; the server never sees them. An error of the
    server is raised as the error class of its code, with the server's message.
    """

    async def users(self) -> dict[str, dict[int, int]]:
        """Return the iterations by user and by the number of the SCRAM mechanism."""
        response: DescribeUserScramCredentialsResponse = await self._cluster.request(
            DESCRIBE_USER_SCRAM_CREDENTIALS,
            DescribeUserScramCredentialsRequest(users=None),
            to=Some.CONTROLLER,
        )
        check(response)
        found = {}
        for result in response.results:
            check(result)
            infos = result.credential_infos
            found[result.user] = {info.mechanism: info.iterations for info in infos}
        return found

    async def alter_users(
        self,
        upsertions: Sequence[ScramUpsertion] = (),
        removed: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Set passwords (`upsertions`), and remove the credentials of mechanisms, by number, from
        users."""
        deletions = [
            ScramDeletion(name=name, mechanism=number)
            for name, numbers in (removed or {}).items()
            for number in numbers
        ]
        response: AlterUserScramCredentialsResponse = await self._cluster.request(
            ALTER_USER_SCRAM_CREDENTIALS,
            AlterUserScramCredentialsRequest(deletions=deletions, upsertions=list(upsertions)),
            to=Some.CONTROLLER,
        )
        for result in response.results:
            check(result)


class AclAdmin(Admin):
    """Lists, adds and removes ACLs.

    An error of the server is raised as the error class of its code, with the server's message.
    """

    async def acls(self) -> list[AclCreation]:
        """Return all ACLs."""
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
        """Remove the ACLs that match these filters, and return them."""
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
        """Return the values of `authorization` and `super.users`; None if the client may not read
        them."""
        try:
            found = {each.name: each.value for each in await self.broker_settings()}
        except CodedError:
            return None
        if "authorization" not in found:
            return None
        return str(found["authorization"]), str(found.get("super.users", ""))
