"""One connection: answers find their requests, and every failure is a typed error."""

import asyncio
import socket
from typing import Any

import pytest

from horolog import (
    ConnectionFailed,
    RequestTimedOut,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    congestion,
)
from horolog.client.cluster.connection import ClientConnection, connect
from horolog.protocol.api.broker.api_versions import ApiVersion
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.native.frames import RequestHead, encode_error, encode_response
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.topics.delete_topics import DELETE_TOPICS, DeleteTopicsRequest
from horolog.protocol.api.topics.metadata import (
    METADATA,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    MetadataTopicResult,
)

pytestmark = pytest.mark.both_loops


def asking(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataTopic(name=name)])


def answer(name: str) -> MetadataResponse:
    return MetadataResponse(brokers=[], topics=[MetadataTopicResult(name=name)])


def first_name(request: MetadataRequest) -> str:
    assert request.topics is not None
    return str(request.topics[0].name)


async def echo(_: RequestHead, body: MetadataRequest, __: Any) -> MetadataResponse:
    return answer(first_name(body))


async def silent(*_: Any) -> None:
    return None


async def connected(address: str, request_timeout_ms: int) -> ClientConnection:
    """A connection whose requests have so much time; to connect there is more."""
    connection = await connect(address)
    connection._request_timeout_ms = request_timeout_ms
    return connection


async def ask(connection: ClientConnection, name: str) -> str:
    response: MetadataResponse = await connection.submit(METADATA, asking(name))
    return response.topics[0].name


async def test_a_request_is_answered(scripted_broker: Any) -> None:
    async with scripted_broker(echo) as broker:
        connection = await connect(broker.address, client_id="me")
        assert await ask(connection, "a") == "a"
        assert broker.requests[0][0].client_id == "me"
        await connection.close()


async def test_an_ipv6_address(scripted_broker: Any) -> None:
    async with scripted_broker(echo, host="::1") as broker:
        assert broker.address.startswith("[::1]:")
        connection = await connect(broker.address)
        assert await ask(connection, "a") == "a"
        await connection.close()


async def test_many_requests_under_way(scripted_broker: Any) -> None:
    async with scripted_broker(echo) as broker:
        connection = await connect(broker.address)
        names = [f"topic-{n}" for n in range(500)]
        answers = await asyncio.gather(*(ask(connection, name) for name in names))
        assert answers == names
        await connection.close()


async def test_answers_find_their_requests_by_correlation_id(scripted_broker: Any) -> None:
    held: list[tuple[RequestHead, MetadataRequest]] = []

    async def backwards(head: RequestHead, body: MetadataRequest, writer: Any) -> None:
        held.append((head, body))
        if len(held) == 3:
            for earlier, asked in reversed(held):
                response = answer(first_name(asked))
                writer.write(encode_response(earlier.correlation_id, METADATA, 0, response))

    async with scripted_broker(backwards) as broker:
        connection = await connect(broker.address)
        assert await asyncio.gather(*(ask(connection, name) for name in "abc")) == ["a", "b", "c"]
        await connection.close()


async def test_faults_3_a_response_in_single_bytes(scripted_broker: Any) -> None:
    async def in_pieces(head: RequestHead, body: MetadataRequest, writer: Any) -> None:
        response = answer(first_name(body))
        for byte in encode_response(head.correlation_id, METADATA, 0, response):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    async with scripted_broker(in_pieces) as broker:
        connection = await connect(broker.address)
        assert await ask(connection, "a") == "a"
        await connection.close()


async def test_an_error_of_the_broker_is_raised_with_its_words(scripted_broker: Any) -> None:
    async def refuse(head: RequestHead, *_: Any) -> bytes:
        return encode_error(head.correlation_id, UnknownTopicOrPartition.code, "no topic `a` here")

    async with scripted_broker(refuse) as broker:
        connection = await connect(broker.address)
        with pytest.raises(UnknownTopicOrPartition, match="no topic `a` here"):
            await ask(connection, "a")
        assert not connection.failed
        await connection.close()


async def test_the_highest_common_version_is_used(scripted_broker: Any) -> None:
    served = [
        ApiVersion(api_key=0, min_version=0, max_version=1),
        ApiVersion(api_key=1, min_version=2, max_version=9),
        ApiVersion(api_key=3, min_version=4, max_version=9),
        ApiVersion(api_key=4711, min_version=0, max_version=0),
    ]
    async with scripted_broker(silent, served=served) as broker:
        connection = await connect(broker.address)
        assert connection.version(PRODUCE) == 1
        assert connection.version(APIS[1]) == 5
        for missing in (METADATA, DELETE_TOPICS):
            with pytest.raises(UnsupportedVersion, match=f"does not serve {missing.name} in any"):
                connection.version(missing)
        await connection.close()


async def test_a_request_that_is_not_answered_times_out(scripted_broker: Any) -> None:
    late = asyncio.Event()

    async def first_one_late(head: RequestHead, body: MetadataRequest, _: Any) -> Any:
        if first_name(body) == "late":
            await late.wait()
        return answer(first_name(body))

    async with scripted_broker(first_one_late) as broker:
        connection = await connected(broker.address, 50)
        with pytest.raises(RequestTimedOut, match="did not answer metadata in 50 ms"):
            await ask(connection, "late")
        connection._request_timeout_ms = 30_000
        late.set()
        # The late answer comes first, and is nobody's any more.
        assert await ask(connection, "b") == "b"
        await connection.close()


async def test_the_wait_asked_for_is_added_to_the_timeout(scripted_broker: Any) -> None:
    async with scripted_broker(silent) as broker:
        connection = await connected(broker.address, 300)
        with pytest.raises(RequestTimedOut, match="in 330 ms"):
            await connection.submit(METADATA, asking("a"), wait_ms=30)
        await connection.close()


async def test_who_gives_up_waiting_disturbs_nobody(scripted_broker: Any) -> None:
    go_on = asyncio.Event()

    async def when_told(head: RequestHead, body: MetadataRequest, _: Any) -> Any:
        await go_on.wait()
        return answer(first_name(body))

    async with scripted_broker(when_told) as broker:
        connection = await connect(broker.address)
        waiting = [asyncio.ensure_future(ask(connection, name)) for name in "abc"]
        await asyncio.sleep(0)
        waiting[1].cancel()
        go_on.set()
        assert await waiting[0] == "a"
        assert await waiting[2] == "c"
        await connection.close()


async def test_when_the_connection_dies_every_request_fails(scripted_broker: Any) -> None:
    async def die_at_the_third(head: RequestHead, body: MetadataRequest, writer: Any) -> None:
        if first_name(body) == "c":
            writer.transport.abort()

    async with scripted_broker(die_at_the_third) as broker:
        connection = await connect(broker.address)
        results = await asyncio.gather(
            *(ask(connection, name) for name in "abc"), return_exceptions=True
        )
        assert [type(result) for result in results] == [ConnectionFailed] * 3
        assert len({id(result) for result in results}) == 3
        assert connection.failed
        with pytest.raises(ConnectionFailed):
            connection.submit(METADATA, asking("d"))
        with pytest.raises(ConnectionFailed):
            await connection.writable()


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        pytest.param(b"\x00\x00\x00\x03\xc1\xc1\xc1", "not valid msgpack", id="no msgpack"),
        pytest.param(b"\x00\x00\x00\x00", "a frame of 0 bytes", id="empty frame"),
        pytest.param(b"\x7f\xff\xff\xff", "the client's limit for a response", id="too long"),
        pytest.param(encode_error(99, 1, "x"), r"a response to no request \(99\)", id="unknown id"),
        pytest.param(
            encode_response(1, DELETE_TOPICS, 0, APIS[20].response(responses=[])),
            "in a response, `brokers` is missing",
            id="another response",
        ),
    ],
)
async def test_a_broken_response_ends_the_connection(
    scripted_broker: Any, reply: bytes, cause: str
) -> None:
    async def broken(*_: Any) -> bytes:
        return reply

    async with scripted_broker(broken) as broker:
        connection = await connect(broker.address)
        with pytest.raises(ConnectionFailed, match=cause):
            await ask(connection, "a")
        assert connection.failed


async def test_what_is_sent_on_the_machine_is_not_paced(scripted_broker: Any) -> None:
    async with scripted_broker(echo) as broker:
        connection = await connect(broker.address)
        transport = connection._transport
        assert transport is not None
        connected = transport.get_extra_info("socket")
        assert congestion.of(connected) == congestion.LOCAL
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await connection.close()


async def test_nobody_listens() -> None:
    with socket.socket() as taken:  # so that no other process listens there meanwhile
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(ConnectionFailed, match=f"cannot connect to 127.0.0.1:{port}"):
            await connect(f"127.0.0.1:{port}")


async def test_a_host_that_does_not_exist() -> None:
    with pytest.raises(ConnectionFailed, match=r"cannot connect to nowhere\.invalid:7070"):
        # The resolver may try for half a minute.
        await connect("nowhere.invalid:7070", request_timeout_ms=120_000)


async def test_what_answers_is_a_web_server() -> None:
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(web, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionFailed, match="the other side speaks HTTP"):
            await connect(f"127.0.0.1:{port}")


async def test_what_listens_says_nothing() -> None:
    release = asyncio.Event()

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionFailed, match="no answer within 50 ms"):
            await connect(f"127.0.0.1:{port}", request_timeout_ms=50)
        release.set()


@pytest.mark.parametrize("address", ["", "7070", "host", "host:", ":7070", "::1:7070", "h:99999"])
async def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|ports end"):
        await connect(address)


async def test_faults_15_a_broker_that_does_not_read(scripted_broker: Any) -> None:
    release = asyncio.Event()

    async def stop_reading(*_: Any) -> None:
        await release.wait()

    async with scripted_broker(stop_reading) as broker:
        connection = await connected(broker.address, 200)
        topics = [MetadataTopic(name="x" * 30_000) for _ in range(1_000)]
        answered = [connection.submit(METADATA, MetadataRequest(topics=topics)) for _ in range(2)]
        with pytest.raises(RequestTimedOut, match="took no more requests in 200 ms"):
            await connection.writable()
        results = await asyncio.gather(*answered, return_exceptions=True)
        assert [type(result) for result in results] == [RequestTimedOut] * 2
        connection.abort()
        release.set()


async def test_closing_fails_what_is_under_way(scripted_broker: Any) -> None:
    async with scripted_broker(silent) as broker:
        connection = await connect(broker.address)
        waiting = connection.submit(DELETE_TOPICS, DeleteTopicsRequest(topic_names=["a"]))
        await connection.close()
        with pytest.raises(ConnectionFailed, match="the connection was closed"):
            await waiting
        await connection.close()
