"""api-versions: the table of requests."""

from functools import cache

from ...protocol.api.broker.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ...protocol.api.registry import APIS
from ...protocol.errors import UnsupportedVersion
from .base import Call, Services


def handle(services: Services, request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    several = services.cluster is not None
    return ApiVersionsResponse(api_keys=_table(native=not call.kafka, several=several))


def unknown_version(*, native: bool, several: bool) -> ApiVersionsResponse:
    """The answer to a version of api-versions that does not exist: the error, and the table."""
    code = UnsupportedVersion.code
    table = _table(native=native, several=several)
    return ApiVersionsResponse(error_code=code, api_keys=table)


@cache
def _table(*, native: bool, several: bool) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=api.key, min_version=versions[0], max_version=versions[-1])
        for api in APIS.values()
        if (versions := api.offered(native=native, several=several))
    ]
