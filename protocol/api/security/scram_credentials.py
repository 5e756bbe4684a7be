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
        UserName,
        max_items=MAX_USERS,
        nullable=True,
        doc="Users to describe; null or empty for all.",
    )


@message
class CredentialInfo:
    mechanism: int = int8(doc="1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.")
    iterations: int = int32(doc="Rounds of the hash.")


@message
class DescribedUser:
    user: str = string(doc="User.")
    error_code: int = int16(default=0, doc="91 if the user does not exist.")
    error_message: str | None = error_text(default=None)
    credential_infos: list[CredentialInfo] = array(
        CredentialInfo, max_items=MAX_MECHANISMS, default=(), doc="Its passwords, by mechanism."
    )


@flexible
@message
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    error_code: int = int16(default=0, doc="0, unless the users cannot be listed.")
    error_message: str | None = error_text(default=None)
    results: list[DescribedUser] = array(DescribedUser, max_items=MAX_USERS, default=())


@message
class ScramDeletion:
    name: str = string(doc="User.")
    mechanism: int = int8(doc="1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.")


@message
class ScramUpsertion:
    name: str = string(doc="User.")
    mechanism: int = int8(doc="1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.")
    iterations: int = int32(doc="4096 to 16,777,216.")
    salt: bytes = data(max_bytes=MAX_SALT_BYTES, doc="Salt, chosen at random by the client.")
    salted_password: bytes = data(
        max_bytes=MAX_SALT_BYTES, doc="The salted password, computed by the client."
    )


@flexible
@message
class AlterUserScramCredentialsRequest:
    deletions: list[ScramDeletion] = array(
        ScramDeletion, max_items=MAX_USERS, default=(), doc="The passwords to remove."
    )
    upsertions: list[ScramUpsertion] = array(
        ScramUpsertion, max_items=MAX_USERS, default=(), doc="The passwords to add or replace."
    )


@message
class AlteredUser:
    user: str = string(doc="User.")
    error_code: int = int16(default=0, doc="0 if all changes of this user were made.")
    error_message: str | None = error_text(default=None)


@flexible
@message
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    results: list[AlteredUser] = array(AlteredUser, max_items=MAX_USERS, default=())


DESCRIBE_USER_SCRAM_CREDENTIALS: Final = Api(
    key=50,
    name="describe-user-scram-credentials",
    min_version=0,
    max_version=0,
    request=DescribeUserScramCredentialsRequest,
    response=DescribeUserScramCredentialsResponse,
    doc="List the users, and the mechanisms with which they may log in. The answer has no secrets.",
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
    doc="Add users, change their passwords, or remove them. A change applies from the next "
    "login on.",
    rights=ALTERS_CLUSTER,
)
