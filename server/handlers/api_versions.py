"""api-versions: the table of requests.

api-versions (key 18): versions 0 to 3, native 0 (KIP-35)
     1  throttle_time_ms in the response (KIP-13)
     2  the response comes before the client is throttled (KIP-219)
     3  compact encoding, name and version of the client (KIP-482, KIP-511)

Left out: features (KIP-584).
"""

import re
from functools import cache
from typing import Final

from ...protocol.api.broker.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from ...protocol.api.registry import APIS
from ...protocol.errors import InvalidRequest, UnsupportedVersion
from ..requests import Call
from .base import Services
from .registration import handles

FIRST_VERSION_WITH_SOFTWARE: Final = 3
"""First version in which a client names its library."""

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Pattern of a library's name and version, as in Kafka."""


@handles(API_VERSIONS)
def handle(services: Services, request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    """Answer with the table of APIs and versions. Raises `InvalidRequest`."""
    if call.version >= FIRST_VERSION_WITH_SOFTWARE:
        _check_software("client_software_name", request.client_software_name)
        _check_software("client_software_version", request.client_software_version)
    several = services.replication.replicates
    return ApiVersionsResponse(api_keys=_table(native=not call.kafka, several=several))


def unknown_version(*, native: bool, several: bool) -> ApiVersionsResponse:
    """Return the answer to an unknown version of api-versions: the error, and the table."""
    code = UnsupportedVersion.code
    table = _table(native=native, several=several)
    return ApiVersionsResponse(error_code=code, api_keys=table)


def _check_software(field: str, value: str) -> None:
    if not _SOFTWARE.fullmatch(value):
        raise InvalidRequest(
            f"{field} is {value[:80]!r}; it must be letters, digits, `-` and `.`, with a letter or "
            "a digit first and last"
        )


@cache
def _table(*, native: bool, several: bool) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=api.key, min_version=versions[0], max_version=versions[-1])
        for api in APIS.values()
        if (versions := api.offered(native=native, several=several))
    ]
