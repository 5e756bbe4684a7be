"""authenticate: one step of a login in the native protocol."""

from typing import Final

from ...limits import MAX_AUTH_BYTES, MAX_MECHANISMS
from ..rights import NO_RIGHTS
from ..schema import Api, ServedBy, Text, array, boolean, data, int64, message, string


@message
class AuthenticateRequest:
    mechanism: str = string(
        default="",
        doc="The mechanism of SASL, in each request of a login. Empty: only ask which there are.",
    )
    auth_bytes: bytes = data(
        max_bytes=MAX_AUTH_BYTES, default=b"", doc="What the mechanism's client says."
    )


@message
class AuthenticateResponse:
    auth_bytes: bytes = data(
        max_bytes=MAX_AUTH_BYTES, default=b"", doc="What the mechanism's server says."
    )
    done: bool = boolean(default=False, doc="Whether the client is logged in now.")
    session_lifetime_ms: int = int64(
        default=0, doc="How long the login holds; 0 for as long as the connection."
    )
    principal: str = string(default="", doc="Who the client is; `User:ANONYMOUS` without a login.")
    mechanisms: list[str] = array(
        Text(), max_items=MAX_MECHANISMS, default=(), doc="The mechanisms that are offered."
    )


AUTHENTICATE: Final = Api(
    key=1003,
    name="authenticate",
    min_version=0,
    max_version=0,
    request=AuthenticateRequest,
    response=AuthenticateResponse,
    doc="One message of a login each way, with SCRAM (RFC 5802) or PLAIN (RFC 4616); as many "
    "requests as the mechanism has messages, until `done`. Error 33 when the mechanism is not "
    "offered, 58 when the login failed: then the broker closes the connection. Allowed before a "
    "login, and again on a connection that is logged in, by the same user, before its session "
    "ends.",
    native=True,
    rights=NO_RIGHTS,
    served_by=ServedBy.ANY_BROKER,
    metered=False,
    before_login=True,
)
