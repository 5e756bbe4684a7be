"""The users of a broker or a Kafka cluster, as they log in with SCRAM."""

from collections.abc import Mapping, Sequence

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
from ..client import Client
from ..cluster.targets import Some
from ..responses import check


class UserAdmin(Client):
    """Lists users, gives them passwords and takes these away.

    A password is salted and hashed here; the server never sees it. What the server refuses is
    raised as the error class of its code, with its words.
    """

    async def users(self) -> dict[str, dict[int, int]]:
        """By user: the iterations by the number of the mechanism."""
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
        """Give passwords, and take those of mechanisms, by their numbers, from users."""
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
