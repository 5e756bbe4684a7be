"""Brokers of different releases: they use what both know, and say so where that is nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from horolog.protocol.api.broker.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsResponse,
)
from horolog.protocol.api.cluster.replicate import (
    REPLICATE,
    ReplicateRequest,
    ReplicateResponse,
    Says,
)
from horolog.protocol.api.native import frames as native
from horolog.protocol.errors import InvalidRequest, UnsupportedVersion
from horolog.server.replication.wire import take_response
from horolog.testing.wire import Wire

from .members import Member, eventually, members

LATER = REPLICATE.max_version + 1


@asynccontextmanager
async def leader_of_a_later_release(
    first: int, last: int
) -> AsyncIterator[tuple[str, list[tuple[int, int]]]]:
    """Its address, and the requests (key, version) that it got; it serves versions of replicate."""
    asked: list[tuple[int, int]] = []
    served = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=API_VERSIONS.key, min_version=0, max_version=3),
            ApiVersion(api_key=REPLICATE.key, min_version=first, max_version=last),
        ]
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while length := await reader.read(4):
            frame = await reader.readexactly(int.from_bytes(length, "big"))
            head, _ = native.open_request(frame)
            asked.append((head.api_key, head.version))
            if head.api_key != API_VERSIONS.key:
                break
            writer.write(
                native.encode_response(head.correlation_id, API_VERSIONS, head.version, served)
            )
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        yield f"{host}:{port}", asked


async def started(member: Member, address: str) -> None:
    await member.start(cluster_follow=address)


async def test_a_leader_that_knows_only_later_versions_is_not_followed(place: Path) -> None:
    async with members(place) as all_, leader_of_a_later_release(LATER, LATER + 1) as (to, asked):
        await started(all_[2], to)
        text = await eventually(lambda: all_[2].cluster.fetcher._reported)
        assert f"does not serve replicate in any version from 0 to {REPLICATE.max_version}" in text
        assert "more than one release apart" in text
        # It is tried again, and nothing is sent that the other does not know.
        await eventually(lambda: len(asked) >= 3)
        assert {key for key, _ in asked} == {API_VERSIONS.key}
        assert not all_[2].cluster.leads


async def test_with_a_later_leader_the_version_that_both_know_is_spoken(place: Path) -> None:
    async with members(place) as all_, leader_of_a_later_release(0, LATER) as (to, asked):
        await started(all_[2], to)
        await eventually(lambda: (REPLICATE.key, REPLICATE.max_version) in asked)
        assert not [version for key, version in asked if key == REPLICATE.key and version == LATER]


async def test_a_follower_of_a_later_release_is_told_what_is_known(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        wire = await Wire.open(all_[1].address)
        hello = ReplicateRequest(says=Says.HELLO, connection=1, broker_id=3)
        newest = REPLICATE.max_version
        frame = bytearray(native.encode_request(REPLICATE, newest, 7, "later", hello))
        # The version stands behind the key: 1004 as uint16 of msgpack, then a small number.
        at = frame.index(b"\xcd" + REPLICATE.key.to_bytes(2, "big")) + 3
        assert frame[at] == newest
        frame[at] = LATER
        wire.send_bytes(bytes(frame))
        head, answer = native.open_response(await wire.frame())
        assert head.correlation_id == 7
        assert head.error_code == UnsupportedVersion.code
        said = f"replicate version {LATER} is unknown; versions 0 to {REPLICATE.max_version}"
        assert said in str(native.error_message(answer))
        wire.close()
        # Nobody else suffers from it.
        await all_.in_sync(all_[1])


def test_an_answer_of_a_kind_that_is_not_known_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="answers is 9; it must be 0, 1, 2 or 3"):
        take_response(ReplicateResponse(answers=9, epoch=1), lambda part: True)
