"""api-versions: the table of requests."""

from ...protocol.api.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ...protocol.api.registry import APIS
from ...protocol.errors import UnsupportedVersion
from .base import Call, Services


def handle(services: Services, request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    return ApiVersionsResponse(api_keys=_table())


def unknown_version() -> ApiVersionsResponse:
    """The answer to a version of api-versions that does not exist: the error, and the table."""
    return ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=_table())


def _table() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
        for api in APIS.values()
    ]
