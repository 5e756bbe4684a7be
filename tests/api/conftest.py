"""Golden requests and responses: one example of every message, derived from its declaration."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from horolog.protocol.api.native.frames import encode_request, encode_response
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import (
    Api,
    Array,
    Boolean,
    Data,
    Float,
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


def example(wire_type: Any, version: int, salt: int = 1, depth: int = 0) -> Any:
    """A value of the type that differs from every default; two items in the outermost arrays."""
    match wire_type:
        case Integer():
            return wire_type.high - salt
        case Float():
            return 0.1 + salt
        case Boolean():
            return True
        case Text():
            return f"name-é-{salt}"
        case Records():
            return bytes([0, 0xFF, salt % 256]) * 9
        case Data():
            return bytes([salt % 256, 0, 0xFF])
        case Array():
            items = 2 if depth <= 1 else 1
            return [example(wire_type.of, version, salt + n, depth + 1) for n in range(items)]
        case type():
            fields = fields_of(wire_type, version, native=True)
            return wire_type(
                **{
                    spec.name: example(spec.type, version, salt + place, depth + 1)
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


SomeOf = Callable[[Sequence[int], int], Sequence[int]]


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.soak)], ids=["some", "all"])
def some_of(request: pytest.FixtureRequest) -> SomeOf:
    """`some_of(values, count)` is `count` of the values, which the run's seed chooses; in a soak it
    is all of them."""
    random = Random(f"{request.config.option.hypothesis_seed} {request.node.name}")
    if request.param:
        return lambda values, count: values
    return lambda values, count: random.sample(values, count)


@pytest.fixture
def peak_bytes() -> Iterator[Callable[[], int]]:
    """Calling it gives the most memory that was allocated at a time since the last call."""
    # To tell of what other tests have left takes memory, too.
    gc.disable()
    tracemalloc.start()
    last = tracemalloc.get_traced_memory()[0]

    def peak() -> int:
        nonlocal last
        allocated = tracemalloc.get_traced_memory()[1] - last
        tracemalloc.reset_peak()
        last = tracemalloc.get_traced_memory()[0]
        return allocated

    yield peak
    tracemalloc.stop()
    gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `golden` once for every version of every request."""
    if "golden" in metafunc.fixturenames:
        metafunc.parametrize(
            "golden",
            [
                pytest.param(golden(api, version), id=f"{api.name}-{version}")
                for api in APIS.values()
                for version in api.versions(native=True)
            ],
        )
