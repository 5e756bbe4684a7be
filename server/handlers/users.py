"""describe-user-scram-credentials and alter-user-scram-credentials.

describe-user-scram-credentials (key 50): versions 0, native 0 (KIP-554)
alter-user-scram-credentials (key 51): versions 0, native 0 (KIP-554)
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from ...protocol.api.pieces import Pieces
from ...protocol.api.security.scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    AlteredUser,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CredentialInfo,
    DescribedUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramUpsertion,
)
from ...protocol.errors import (
    CodedError,
    DuplicateResource,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from ...protocol.limits import MAX_USERS
from ..requests import Call, PendingAnswer, in_turns
from .base import Services
from .registration import handles

if TYPE_CHECKING:
    from ..security.users import CredentialChange, Users


@handles(DESCRIBE_USER_SCRAM_CREDENTIALS)
def describe(
    services: Services, request: DescribeUserScramCredentialsRequest, call: Call
) -> DescribeUserScramCredentialsResponse | PendingAnswer:
    return in_turns(services.work, _describing(services, request))


def _describing(
    services: Services, request: DescribeUserScramCredentialsRequest
) -> Pieces[DescribeUserScramCredentialsResponse]:
    users = services.security.users
    times = Counter(
        [user.name for user in request.users] if request.users else users.names()[:MAX_USERS]
    )
    results: list[DescribedUser] = []
    for name, count in times.items():
        results.append(_described(users, name, count))
        yield
    return DescribeUserScramCredentialsResponse(results=results)


def _described(users: "Users", name: str, times: int) -> DescribedUser:
    try:
        if times > 1:
            raise DuplicateResource(f"the request names {name[:100]!r} {times} times")
        found = users.credentials(name)
    except (DuplicateResource, ResourceNotFound) as error:
        return DescribedUser(user=name, error_code=error.code, error_message=error.message)
    infos = [
        CredentialInfo(mechanism=each.mechanism.number, iterations=each.iterations)
        for each in found.values()
    ]
    return DescribedUser(user=name, credential_infos=infos)


@handles(ALTER_USER_SCRAM_CREDENTIALS)
def alter(
    services: Services, request: AlterUserScramCredentialsRequest, call: Call
) -> AlterUserScramCredentialsResponse | PendingAnswer:
    """Alter users as Kafka does: each user succeeds or fails as a whole, with the first error."""
    return in_turns(services.work, _altering(services, request, call))


def _altering(
    services: Services, request: AlterUserScramCredentialsRequest, call: Call
) -> Pieces[PendingAnswer]:
    users = services.security.users
    named = Counter((each.name, each.mechanism) for each in _asked(request))
    wrong: dict[str, CodedError] = {}
    changes: dict[str, list[CredentialChange]] = {}
    for each in _asked(request):
        of_user = changes.setdefault(each.name, [])
        try:
            if named[each.name, each.mechanism] > 1:
                raise DuplicateResource(f"the request names {each.name[:100]!r} twice")
            of_user.append(_change(each))
        except CodedError as error:
            wrong.setdefault(each.name, error)
        yield
    groups = [of_user for user, of_user in changes.items() if user not in wrong]
    made = services.metadata.change_access(lambda: users.planned(groups))

    def answering() -> Pieces[AlterUserScramCredentialsResponse]:
        outcomes = iter(made.result())
        results = []
        for user in changes:
            error = wrong[user] if user in wrong else next(outcomes)
            code, text = (0, None) if error is None else (error.code, error.message)
            results.append(AlteredUser(user=user, error_code=code, error_message=text))
            services.security.changed(user, call.principal, call.client_host, error)
            yield
        return AlterUserScramCredentialsResponse(results=results)

    return PendingAnswer(made, lambda: in_turns(services.work, answering()), alone=True)


def _asked(request: AlterUserScramCredentialsRequest) -> list[Any]:
    return [*request.deletions, *request.upsertions]


def _change(asked: Any) -> "CredentialChange":
    from ...protocol.sasl.mechanisms import SCRAM_MECHANISMS
    from ...protocol.sasl.scram import credential_of
    from ..security.users import CredentialRemoval, UserEntry

    by_number = {mechanism.number: mechanism for mechanism in SCRAM_MECHANISMS.values()}
    mechanism = by_number.get(asked.mechanism)
    if mechanism is None:
        known = " and ".join(f"{each.number} ({each.name})" for each in by_number.values())
        raise UnsupportedSaslMechanism(f"mechanism {asked.mechanism} is unknown; there are {known}")
    if not isinstance(asked, ScramUpsertion):
        return CredentialRemoval(asked.name, mechanism)
    if len(asked.salted_password) != mechanism.hash_bytes or not asked.salt:
        raise UnacceptableCredential(
            f"a salted password of {mechanism.name} has {mechanism.hash_bytes} bytes, not "
            f"{len(asked.salted_password)}, and a salt that is not empty"
        )
    made = credential_of(mechanism, asked.salted_password, asked.salt, asked.iterations)
    return UserEntry(asked.name, made)
