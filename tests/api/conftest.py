"""Golden requests and responses: one example of every message, derived from its declaration."""

from dataclasses import dataclass
from typing import Any

import pytest

from horolog.protocol.api.native import encode_request, encode_response
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import (
    Api,
    Array,
    Boolean,
    Integer,
    Records,
    Text,
    fields_of,
)

CORRELATION_ID = 77


@dataclass(frozen=True)
class Golden:
    """One request and its response: as objects, and as frames without their length."""

    api: Api
    version: int
    request: Any
    response: Any
    request_frame: bytes
    response_frame: bytes


def example(wire_type: Any, version: int, salt: int = 1) -> Any:
    """A value of the type that differs from every default."""
    match wire_type:
        case Integer():
            return wire_type.high - salt
        case Boolean():
            return True
        case Text():
            return f"name-é-{salt}"
        case Records():
            return bytes([0, 0xFF, salt % 256]) * 9
        case Array():
            return [example(wire_type.of, version, salt + n) for n in range(2)]
        case type():
            fields = fields_of(wire_type, version, native=True)
            return wire_type(
                **{
                    spec.name: example(spec.type, version, salt + place)
                    for place, spec in enumerate(fields)
                }
            )
    raise AssertionError(wire_type)


def golden(api: Api, version: int) -> Golden:
    request = example(api.request, version)
    response = example(api.response, version)
    return Golden(
        api,
        version,
        request,
        response,
        encode_request(api, version, CORRELATION_ID, "someone", request)[4:],
        encode_response(CORRELATION_ID, api, version, response)[4:],
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `golden` once for every version of every request."""
    if "golden" in metafunc.fixturenames:
        metafunc.parametrize(
            "golden",
            [
                pytest.param(golden(api, version), id=f"{api.name}-{version}")
                for api in APIS.values()
                for version in range(api.min_version, api.max_version + 1)
            ],
        )
