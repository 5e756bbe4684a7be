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
        since=3, default="", doc="Version of the library, in the same characters."
    )


@message
class ApiVersion:
    api_key: int = int16(doc="Key of the request.")
    min_version: int = int16(doc="Lowest supported version.")
    max_version: int = int16(doc="Highest supported version.")


@plain_head
@flexible_since(3)
@message
class ApiVersionsResponse:
    error_code: int = int16(default=0, doc="0.")
    api_keys: list[ApiVersion] = array(ApiVersion, max_items=MAX_APIS)
    throttle_time_ms: int = int32(
        since=1, default=0, doc="How long the client is throttled, in ms."
    )


API_VERSIONS: Final = Api(
    key=18,
    name="api-versions",
    min_version=0,
    max_version=3,
    native_max_version=0,
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
    doc="List the requests that the broker serves, with their versions. A client sends this "
    "first, and uses versions that both sides support.",
    rights=NO_RIGHTS,
    served_by=ServedBy.ANY_BROKER,
    before_login=True,
)
