"""Fault 6: apis and versions that do not exist, over a socket.

Decision of the native protocol: the answer is error 35 under the request's own id, and the
connection stays; api-versions answers an unknown version with the versions that there are.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import msgpack
import pytest

from horolog.protocol.api.broker.api_versions import API_VERSIONS
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import Api
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.errors import UnsupportedVersion
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.wire import Wire, wire

UNKNOWN_APIS = [-(2**63), -(2**15), -1, 4, 5, 77, 2**15 - 1, 2**15, 2**31, 2**64 - 1]
HUGE_VERSIONS = [-(2**63), -(2**15), -1, 2**15 - 1, 2**15, 2**64 - 1]
NATIVE_APIS = [api for api in APIS.values() if api.versions(native=True)]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, http_listen="off") as started:
        yield started


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Wire]:
    async with wire(broker.addresses.native) as connected:
        yield connected


def frame(api: int, version: int, correlation_id: int) -> bytes:
    body: bytes = msgpack.packb([api, version, correlation_id, "c", {}])
    return len(body).to_bytes(4, "big") + body


async def refusal(client: Wire, api: int, version: int, correlation_id: int) -> str:
    """The message of error 35, which has to come under the right id."""
    client.send_bytes(frame(api, version, correlation_id))
    head, raw = native.open_response(await client.frame())
    assert (head.correlation_id, head.error_code) == (correlation_id, UnsupportedVersion.code)
    return native.error_message(raw) or ""


async def still_served(client: Wire) -> None:
    await client.call(MetadataRequest(allow_auto_topic_creation=False))


async def test_06_unknown_apis_are_named_and_cost_nothing(broker: Broker, client: Wire) -> None:
    for number, api in enumerate(UNKNOWN_APIS):
        message = await refusal(client, api, 0, number)
        assert f"request {api} is unknown" in message
        assert "0 produce" in message
        await still_served(client)
    assert set(broker.figures.requests) == {
        ("unknown", "UNSUPPORTED_VERSION"),
        ("metadata", "NONE"),
    }


@pytest.mark.parametrize(
    "api", [pytest.param(api, id=api.name) for api in NATIVE_APIS if api is not API_VERSIONS]
)
async def test_06_versions_beside_those_of_an_api(client: Wire, api: Api) -> None:
    versions = {api.min_version - 1, api.last_version(native=True) + 1, *HUGE_VERSIONS}
    for number, version in enumerate(sorted(versions)):
        message = await refusal(client, api.key, version, number)
        assert f"{api.name} version {version} is unknown" in message
        assert f"versions {api.min_version} to {api.last_version(native=True)}" in message
    await still_served(client)


@pytest.mark.parametrize("version", [API_VERSIONS.last_version(native=True) + 1, *HUGE_VERSIONS])
async def test_06_who_asks_for_versions_in_a_version_of_the_future_learns_them(
    client: Wire, version: int
) -> None:
    client.send_bytes(frame(API_VERSIONS.key, version, 9))
    head, raw = native.open_response(await client.frame())
    assert (head.correlation_id, head.error_code) == (9, 0)
    known = native.decode_response(
        API_VERSIONS.response, API_VERSIONS.last_version(native=True), raw
    )
    assert known.error_code == UnsupportedVersion.code
    assert {entry.api_key for entry in known.api_keys} == {api.key for api in NATIVE_APIS}
    await still_served(client)


async def test_06_a_pipeline_goes_on_behind_them(client: Wire) -> None:
    """Answers come in the order of the requests, the refused ones among the others."""
    stream = b"".join(frame(77 if number % 2 else 3, 0, number) for number in range(200))
    client.send_bytes(stream)
    for number in range(200):
        head, _ = native.open_response(await client.frame())
        assert head.correlation_id == number
        assert (head.error_code == UnsupportedVersion.code) == bool(number % 2)
