"""api-versions: which requests the broker knows, in which versions."""

from typing import Final

from ...limits import MAX_APIS
from ..schema import Api, array, int16, int32, message


@message
class ApiVersionsRequest:
    """Nothing to say."""


@message
class ApiVersion:
    api_key: int = int16(doc="Request.")
    min_version: int = int16(doc="Lowest version served.")
    max_version: int = int16(doc="Highest version served.")


@message
class ApiVersionsResponse:
    error_code: int = int16(default=0, doc="0.")
    api_keys: list[ApiVersion] = array(ApiVersion, max_items=MAX_APIS)
    throttle_time_ms: int = int32(since=1, default=0, doc="How long the client is not listened to.")


API_VERSIONS: Final = Api(
    key=18,
    name="api-versions",
    min_version=0,
    max_version=2,
    native_max_version=0,
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
    doc="The requests served. A client asks this first and picks versions both sides have.",
)
