"""sasl-handshake: choose the SASL mechanism, in Kafka's protocol."""

from typing import Final

from ...limits import MAX_MECHANISMS
from ..rights import NO_RIGHTS
from ..schema import Api, ServedBy, Text, array, int16, message, string


@message
class SaslHandshakeRequest:
    mechanism: str = string(doc="The mechanism of SASL that the client wants to use.")


@message
class SaslHandshakeResponse:
    error_code: int = int16(default=0, doc="0; 33 when the mechanism is not offered.")
    mechanisms: list[str] = array(
        Text(), max_items=MAX_MECHANISMS, default=(), doc="The mechanisms that are offered."
    )


SASL_HANDSHAKE: Final = Api(
    key=17,
    name="sasl-handshake",
    min_version=0,
    max_version=1,
    native_max_version=-1,
    request=SaslHandshakeRequest,
    response=SaslHandshakeResponse,
    doc="Choose a mechanism. Behind version 0 the messages of SASL come as frames without a head, "
    "behind version 1 in sasl-authenticate.",
    rights=NO_RIGHTS,
    served_by=ServedBy.ANY_BROKER,
    metered=False,
    before_login=True,
)
