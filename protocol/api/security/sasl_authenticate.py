"""sasl-authenticate: one step of a login in Kafka's protocol."""

from typing import Final

from ...limits import MAX_AUTH_BYTES
from ..rights import NO_RIGHTS
from ..schema import Api, ServedBy, data, error_text, int16, int64, message


@message
class SaslAuthenticateRequest:
    auth_bytes: bytes = data(
        max_bytes=MAX_AUTH_BYTES, doc="Message of the client, as the mechanism defines it."
    )


@message
class SaslAuthenticateResponse:
    error_code: int = int16(
        default=0, doc="0; 58 if the login failed; 34 if no handshake came before."
    )
    error_message: str | None = error_text(default=None)
    auth_bytes: bytes = data(
        max_bytes=MAX_AUTH_BYTES,
        default=b"",
        doc="Message of the server, as the mechanism defines it.",
    )
    session_lifetime_ms: int = int64(
        since=1, default=0, doc="How long the session lasts; 0: as long as the connection."
    )


SASL_AUTHENTICATE: Final = Api(
    key=36,
    name="sasl-authenticate",
    min_version=0,
    max_version=1,
    native_max_version=-1,
    request=SaslAuthenticateRequest,
    response=SaslAuthenticateResponse,
    doc="Exchange one message of a login in each direction.",
    rights=NO_RIGHTS,
    served_by=ServedBy.ANY_BROKER,
    metered=False,
    before_login=True,
)
