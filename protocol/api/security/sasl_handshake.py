"""sasl-handshake: choose the SASL mechanism, in Kafka's protocol."""

from typing import Final

from ...limits import MAX_MECHANISMS
from ..rights import NO_RIGHTS
from ..schema import Api, ServedBy, Text, array, int16, message, string


@message
class SaslHandshakeRequest:
    mechanism: str = string(doc="The SASL mechanism that the client wants to use.")


@message
class SaslHandshakeResponse:
    error_code: int = int16(default=0, doc="0; 33 if the mechanism is not offered.")
    mechanisms: list[str] = array(
        Text(), max_items=MAX_MECHANISMS, default=(), doc="The mechanisms that the broker offers."
    )


SASL_HANDSHAKE: Final = Api(
    key=17,
    name="sasl-handshake",
    min_version=0,
    max_version=1,
    native_max_version=-1,
    request=SaslHandshakeRequest,
    response=SaslHandshakeResponse,
    doc="Choose a mechanism. After version 0, SASL messages are frames without a header. "
    "After version 1, they are in sasl-authenticate requests.",
    rights=NO_RIGHTS,
    served_by=ServedBy.ANY_BROKER,
    metered=False,
    before_login=True,
)
