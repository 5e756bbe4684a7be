"""sasl-authenticate: one step of a login in Kafka's protocol."""

from typing import Final

from ...limits import MAX_AUTH_BYTES
from ..rights import NO_RIGHTS
from ..schema import Api, ServedBy, data, error_text, int16, int64, message


@message
class SaslAuthenticateRequest:
    auth_bytes: bytes = data(max_bytes=MAX_AUTH_BYTES, doc="What the mechanism's client says.")


@message
class SaslAuthenticateResponse:
    error_code: int = int16(default=0, doc="0; 58 when the login failed; 34 out of turn.")
    error_message: str | None = error_text(default=None)
    auth_bytes: bytes = data(
        max_bytes=MAX_AUTH_BYTES, default=b"", doc="What the mechanism's server says."
    )
    session_lifetime_ms: int = int64(
        since=1, default=0, doc="How long the login holds; 0 for as long as the connection."
    )


SASL_AUTHENTICATE: Final = Api(
    key=36,
    name="sasl-authenticate",
    min_version=0,
    max_version=1,
    native_max_version=-1,
    request=SaslAuthenticateRequest,
    response=SaslAuthenticateResponse,
    doc="One message of a login each way.",
    rights=NO_RIGHTS,
    served_by=ServedBy.ANY_BROKER,
    metered=False,
    before_login=True,
)
