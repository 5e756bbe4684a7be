"""describe-user-scram-credentials and alter-user-scram-credentials: list and change users with
SCRAM passwords."""

from typing import Final

from ...limits import MAX_MECHANISMS, MAX_SALT_BYTES, MAX_USERS
from ..rights import ALTERS_CLUSTER, DESCRIBES_CLUSTER
from ..schema import (
    Api,
    ServedBy,
    array,
    data,
    error_text,
    flexible,
    int8,
    int16,
    int32,
    message,
    string,
)


@message
class UserName:
    name: str = string(doc="User.")


@flexible
@message
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = array(
        UserName, max_items=MAX_USERS, nullable=True, doc="Whom to tell of; null or empty: of all."
    )


@message
class CredentialInfo:
    mechanism: int = int8(doc="1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.")
    iterations: int = int32(doc="Rounds of the hash.")


@message
class DescribedUser:
    user: str = string(doc="User.")
    error_code: int = int16(default=0, doc="91 when there is no such user.")
    error_message: str | None = error_text(default=None)
    credential_infos: list[CredentialInfo] = array(
        CredentialInfo, max_items=MAX_MECHANISMS, default=(), doc="Its passwords, by mechanism."
    )


@flexible
@message
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is not listened to.")
    error_code: int = int16(default=0, doc="0 unless none can be named.")
    error_message: str | None = error_text(default=None)
    results: list[DescribedUser] = array(DescribedUser, max_items=MAX_USERS, default=())


@message
class ScramDeletion:
    name: str = string(doc="User.")
    mechanism: int = int8(doc="As above.")


@message
class ScramUpsertion:
    name: str = string(doc="User.")
    mechanism: int = int8(doc="As above.")
    iterations: int = int32(doc="4096 to 16,777,216.")
    salt: bytes = data(max_bytes=MAX_SALT_BYTES, doc="At random, by the client.")
    salted_password: bytes = data(
        max_bytes=MAX_SALT_BYTES, doc="The password behind the iterations, by the client."
    )


@flexible
@message
class AlterUserScramCredentialsRequest:
    deletions: list[ScramDeletion] = array(
        ScramDeletion, max_items=MAX_USERS, default=(), doc="What to remove."
    )
    upsertions: list[ScramUpsertion] = array(
        ScramUpsertion, max_items=MAX_USERS, default=(), doc="What to add or replace."
    )


@message
class AlteredUser:
    user: str = string(doc="User.")
    error_code: int = int16(default=0, doc="0 when all that was asked for it is done.")
    error_message: str | None = error_text(default=None)


@flexible
@message
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is not listened to.")
    results: list[AlteredUser] = array(AlteredUser, max_items=MAX_USERS, default=())


DESCRIBE_USER_SCRAM_CREDENTIALS: Final = Api(
    key=50,
    name="describe-user-scram-credentials",
    min_version=0,
    max_version=0,
    request=DescribeUserScramCredentialsRequest,
    response=DescribeUserScramCredentialsResponse,
    doc="Which users there are, and how they may log in. No secret is in it.",
    rights=DESCRIBES_CLUSTER,
    served_by=ServedBy.ANY_BROKER,
)

ALTER_USER_SCRAM_CREDENTIALS: Final = Api(
    key=51,
    name="alter-user-scram-credentials",
    min_version=0,
    max_version=0,
    request=AlterUserScramCredentialsRequest,
    response=AlterUserScramCredentialsResponse,
    doc="Add users, change their passwords, remove them. The change holds for the next login.",
    rights=ALTERS_CLUSTER,
)
