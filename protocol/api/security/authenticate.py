"""authenticate: one step of a login in the native protocol."""

from typing import Final

from ...limits import MAX_AUTH_BYTES, MAX_MECHANISMS
from ..rights import NO_RIGHTS
from ..schema import Api, ServedBy, Text, array, boolean, data, int64, message, string


@message
class AuthenticateRequest:
    mechanism: str = string(
        default="",
        doc="The SASL mechanism, in each request of a login. Empty: list the mechanisms.",
    )
    auth_bytes: bytes = data(
        max_bytes=MAX_AUTH_BYTES,
        default=b"",
        doc="Message of the client, as the mechanism defines it.",
    )


@message
class AuthenticateResponse:
    auth_bytes: bytes = data(
        max_bytes=MAX_AUTH_BYTES,
        default=b"",
        doc="Message of the server, as the mechanism defines it.",
    )
    done: bool = boolean(default=False, doc="Whether the client is logged in now.")
    session_lifetime_ms: int = int64(
        default=0, doc="How long the session lasts; 0: as long as the connection."
    )
    principal: str = string(
        default="", doc="Principal of the client; `User:ANONYMOUS` without a login."
    )
    mechanisms: list[str] = array(
        Text(), max_items=MAX_MECHANISMS, default=(), doc="The mechanisms that the broker offers."
    )


AUTHENTICATE: Final = Api(
    key=1003,
    name="authenticate",
    min_version=0,
    max_version=0,
    request=AuthenticateRequest,
    response=AuthenticateResponse,
    doc="Exchange one message of a login in each direction, with SCRAM (RFC 5802) or PLAIN "
    "(RFC 4616). The client repeats it until `done`. Error 33 if the mechanism is not "
    "offered; 58 if the login failed, and then the broker closes the connection. Allowed "
    "before a login, and on a logged-in connection for the same user before the session ends.",
    native=True,
    rights=NO_RIGHTS,
    served_by=ServedBy.ANY_BROKER,
    metered=False,
    before_login=True,
)
