"""api-versions: which requests the broker knows, in which versions."""

from typing import Final

from ...limits import MAX_APIS
from ..rights import NO_RIGHTS
from ..schema import Api, ServedBy, array, flexible_since, int16, int32, message, plain_head, string


@flexible_since(3)
@message
class ApiVersionsRequest:
    client_software_name: str = string(
        since=3, default="", doc="Name of the client's library: letters, digits, `-` and `.`."
    )
    client_software_version: str = string(
        since=3, default="", doc="Its version, of the same characters."
    )


@message
class ApiVersion:
    api_key: int = int16(doc="Request.")
    min_version: int = int16(doc="Lowest version served.")
    max_version: int = int16(doc="Highest version served.")


@plain_head
@flexible_since(3)
@message
class ApiVersionsResponse:
    error_code: int = int16(default=0, doc="0.")
    api_keys: list[ApiVersion] = array(ApiVersion, max_items=MAX_APIS)
    throttle_time_ms: int = int32(since=1, default=0, doc="How long the client is not listened to.")


API_VERSIONS: Final = Api(
    key=18,
    name="api-versions",
    min_version=0,
    max_version=3,
    native_max_version=0,
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
    doc="The requests served. A client asks this first and picks versions both sides have.",
    rights=NO_RIGHTS,
    served_by=ServedBy.ANY_BROKER,
    before_login=True,
)
