"""Which handler answers, and what exceptions become on the wire."""

import asyncio
import errno
import gc
import re
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import horolog
from horolog.protocol.api.broker.api_versions import API_VERSIONS, ApiVersionsRequest
from horolog.protocol.api.cluster.replicate import REPLICATE, ReplicateRequest, Says
from horolog.protocol.api.framing import ProtocolError
from horolog.protocol.api.groups.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.groups.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    OffsetFetchTopicResult,
)
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.describe_log import DescribeLogRequest, DescribeLogTopic
from horolog.protocol.api.log.fetch import FETCH
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.pieces import emptied
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import Api
from horolog.protocol.api.topics.alter_configs import AlterConfigsRequest
from horolog.protocol.api.topics.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from horolog.protocol.api.topics.metadata import METADATA, MetadataRequest, MetadataTopic
from horolog.protocol.errors import (
    ERRORS,
    CodedError,
    InvalidRequest,
    StorageError,
    UnknownServerError,
    UnsupportedVersion,
)
from horolog.protocol.limits import LARGE_REQUEST_BYTES, MAX_SMALL_REQUEST_VALUES
from horolog.server.broker import Broker
from horolog.server.handlers import HANDLERS
from horolog.server.network.endpoint import Caller
from horolog.server.network.sending import AnswerInParts
from horolog.server.outcomes import (
    CloseConnection,
    Outcomes,
    first_error,
    first_error_in_pieces,
)
from horolog.server.parking import Wait
from horolog.server.requests import PendingAnswer
from horolog.testing.logs import RecordedEvents
from horolog.testing.requests import (
    create_topic,
    fetch,
    list_offsets,
    message_set,
    produce,
    produce_to,
)
from horolog.testing.waiting import until
from horolog.testing.wire import Wire

CALLER = Caller(("127.0.0.1", 7070), "127.0.0.1")


def test_every_request_has_a_handler_rights_and_its_lines_in_the_docs() -> None:
    docs = Path(horolog.__file__).parent / "docs"
    protocol, rights = ((docs / name).read_text() for name in ("protocol.md", "security/rights.md"))
    assert set(HANDLERS) == set(APIS)
    for api in APIS.values():
        name = rf"\[{api.name}\]\(#{api.name}\)" if api.versions(native=True) else api.name
        assert re.search(rf"^\| {api.key} \| {name} \|", protocol, re.M)
        assert f"\n| {api.name} |" in rights


def versions_of(api: Api) -> str:
    """As the head of a handler's file says it."""
    served = []
    for what in ("versions", "native"):
        versions = api.versions(native=what == "native")
        if versions:
            first, last = versions[0], versions[-1]
            served.append(f"{what} {first}" + (f" to {last}" if last > first else ""))
    return ", ".join(served)


def test_a_handlers_file_begins_with_the_versions_that_it_serves() -> None:
    folder = Path(horolog.__file__).parent / "server" / "handlers"
    texts = [path.read_text() for path in folder.glob("*.py")]
    for api in APIS.values():
        constant = api.name.upper().replace("-", "_")
        registered = re.compile(rf"^@handles(_many)?\({constant}[,)]", re.M)
        (text,) = filter(registered.search, texts)
        head = text.split('"""')[1]
        line = f"{api.name} (key {api.key}): {versions_of(api)}"
        assert re.search(rf"^{re.escape(line)}( \(KIP.*)?$", head, re.M), line


def test_requests_that_need_no_right() -> None:
    assert {api.name for api in APIS.values() if not api.rights} == {
        "api-versions",
        "authenticate",
        "describe-cluster",
        "list-transactions",
        "sasl-authenticate",
        "sasl-handshake",
    }


async def test_only_what_may_be_handled_together_waits_for_others(broker: Broker) -> None:
    """A follower's fetch is answered at once: producers wait for what it confirms."""

    def waits(api: Api, body: object) -> bool:
        frame = native.encode_request(api, api.last_version(native=True), 1, "c", body)
        return broker.dispatcher.waits_for_others(frame[4:])

    assert waits(PRODUCE, produce("a", message_set(1)))
    assert not waits(FETCH, fetch("a", (0, 0)))
    assert not waits(REPLICATE, ReplicateRequest(says=Says.FETCH, connection=1))


async def test_api_versions_tells_what_is_served(client: Wire) -> None:
    response = await client.call(ApiVersionsRequest())
    assert response.error_code == 0
    assert {(api.api_key, api.min_version, api.max_version) for api in response.api_keys} == {
        (api.key, api.min_version, api.last_version(native=True))
        for api in APIS.values()
        if api.versions(native=True)
    }


@pytest.mark.parametrize("version", [-1, 1, 3, 32767], ids=lambda version: f"fault6-{version}")
async def test_api_versions_of_an_unknown_version_still_tells(client: Wire, version: int) -> None:
    request = [API_VERSIONS.key, version, 7, "c", {"some": "thing"}]
    client.send_bytes(framed(request))
    head, raw = native.open_response(await client.frame())
    assert head == (7, 0)
    response = native.decode_response(API_VERSIONS.response, 0, raw)
    assert response.error_code == UnsupportedVersion.code
    assert len(response.api_keys) == len(
        [api for api in APIS.values() if api.versions(native=True)]
    )
    await client.call(ApiVersionsRequest())


def framed(request: object) -> bytes:
    payload: bytes = msgpack.packb(request)
    return len(payload).to_bytes(4, "big") + payload


@pytest.mark.parametrize(
    ("api_key", "version", "words"),
    [
        pytest.param(77, 0, "request 77 is unknown", id="fault6-unknown-api"),
        pytest.param(-1, 0, "request -1 is unknown", id="fault6-negative-api"),
        pytest.param(2**40, 0, "is unknown", id="fault6-huge-api"),
        pytest.param(0, 4, "produce version 4 is unknown; versions 0 to 3", id="fault6-too-high"),
        pytest.param(1, -1, "fetch version -1 is unknown", id="fault6-version--1"),
    ],
)
async def test_unknown_requests_are_answered_and_the_connection_stays(
    broker: Broker, client: Wire, api_key: int, version: int, words: str
) -> None:
    client.send_bytes(framed([api_key, version, 9, None, {}]))
    head, raw = native.open_response(await client.frame())
    assert head == (9, UnsupportedVersion.code)
    assert words in str(native.error_message(raw))
    await client.call(ApiVersionsRequest())
    name = APIS[api_key].name if api_key in APIS else "unknown"
    assert broker.figures.requests[name, "UNSUPPORTED_VERSION"] == 1


def deep(depth: int) -> object:
    nested: object = 1
    for _ in range(depth):
        nested = [nested]
    return nested


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(msgpack.packb(deep(400)), id="fault7-400-deep"),
        pytest.param(b"\x91" * 100_000 + b"\x01", id="fault7-100000-deep"),
        pytest.param(b"\xdd\xff\xff\xff\xff", id="fault7-huge-array"),
        pytest.param(b"\xdf\xff\xff\xff\xff\x01\x01", id="fault7-huge-map"),
        pytest.param(b"\xc7\x04\x05abcd", id="fault7-extension"),
        pytest.param(b"\xd6\xff\0\0\0\0", id="fault7-timestamp-extension"),
        pytest.param(b"\x81\xa6topics\xcb\x7f\xf8\0\0\0\0\0\0", id="fault7-NaN"),
        pytest.param(b"\x81\x01\x02", id="fault7-integer-key"),
        pytest.param(msgpack.packb({"topics": [{"name": "a"}]})[:-1] + b"\xff", id="fault7-utf8"),
        pytest.param(b"\xc0", id="null"),
        pytest.param(b"\x90", id="array"),
        pytest.param(b"\x81\xa6topics", id="cut-off"),
        pytest.param(b"\x80\x80", id="something-behind-it"),
    ],
)
async def test_a_bad_body_is_answered_and_the_connection_stays(client: Wire, body: bytes) -> None:
    payload = b"\x95" + b"".join(map(msgpack.packb, (METADATA.key, 0, 5, "c"))) + body
    client.send_bytes(len(payload).to_bytes(4, "big") + payload)
    head, raw = native.open_response(await client.frame())
    assert head == (5, InvalidRequest.code)
    assert native.error_message(raw)
    await client.call(ApiVersionsRequest())


@pytest.mark.parametrize(
    "payload",
    [
        b"\x93\x03\x00\x05",
        msgpack.packb([3, 0, 5, "c"]),
        msgpack.packb(["three", 0, 5, "c", {}]),
        msgpack.packb([3, 0, 2**40, "c", {}]),
        msgpack.packb({}),
        b"\xc1",
    ],
    ids=repr,
)
async def test_a_request_without_a_head_closes(client: Wire, payload: bytes) -> None:
    client.send_bytes(len(payload).to_bytes(4, "big") + payload)
    assert await client.at_end()


class Broken:
    """A handler with a bug."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self, *_: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "event"),
    [
        pytest.param(InvalidRequest("no"), InvalidRequest.code, None, id="ours"),
        pytest.param(
            OSError(errno.ENOSPC, "No space left on device", "/secret/path"),
            StorageError.code,
            "storage_failed",
            id="disk-full",
        ),
        pytest.param(OSError(errno.EIO, "Input/output error"), 56, "storage_failed", id="EIO"),
        pytest.param(
            KeyError("/secret/path"), UnknownServerError.code, "request_failed", id="a-bug"
        ),
        pytest.param(MemoryError("/secret/path"), -1, "request_failed", id="no-memory"),
    ],
)
def test_exceptions_become_codes_in_one_place(
    error: Exception, code: int, event: str | None
) -> None:
    events = RecordedEvents()
    told, message = Outcomes(events).of(error, api="metadata")
    assert told == code
    assert "secret" not in message
    assert [name for name, _ in events.seen] == ([] if event is None else [event])
    if event is not None:
        assert events.seen[0][1] == {"api": "metadata", "error": error}


async def test_a_bug_in_a_handler_is_an_answer_and_no_more(
    broker: Broker, client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = dict(HANDLERS) | {METADATA.key: Broken(RuntimeError("/secret"))}
    monkeypatch.setattr(broker.dispatcher, "_handlers", handlers)
    with pytest.raises(UnknownServerError) as caught:
        await client.call(MetadataRequest())
    assert "secret" not in caught.value.message
    await client.call(ApiVersionsRequest())
    assert broker.figures.requests["metadata", "UNKNOWN"] == 1


def some_requests() -> Iterator[tuple[Any, int]]:
    yield produce("a", message_set(5, 6)), 2
    yield produce("a", message_set(5), acks=-1, timeout_ms=1), 0
    yield fetch("a", (0, 0), (1, 5), max_wait_ms=10, min_bytes=1), 3
    yield fetch("a", (0, 0)), 0
    yield list_offsets("a", (0, 5), (1, -1)), 1
    yield list_offsets("a", (0, -3)), 0
    yield MetadataRequest(topics=[MetadataTopic(name="b")]), 0
    yield create_topic("c", partitions=2, retention_ms=5), 0
    yield DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_name="a")]), 0
    yield AlterConfigsRequest(resources=[]), 0
    yield DescribeLogRequest(topics=[DescribeLogTopic(name="a", partitions=[0])]), 0
    yield ApiVersionsRequest(), 0
    position = OffsetCommitPartition(partition=0, committed_offset=1)
    topic = OffsetCommitTopic(name="a", partitions=[position])
    yield OffsetCommitRequest(group_id="g", topics=[topic]), 0
    yield (
        OffsetFetchRequest(group_id="g", topics=[OffsetFetchTopic(name="a", partitions=[0])]),
        0,
    )


def frames() -> list[bytes]:
    return [
        native.encode_request(
            next(api for api in APIS.values() if api.request is type(body)), version, 1, "c", body
        )[4:]
        for body, version in some_requests()
    ]


async def outcome(broker: Broker, frame: bytes) -> bytes | None:
    """What the connection would do with `frame`: the answer, or `None` when it closes."""
    try:
        answer = broker.dispatcher.answer_one(frame, CALLER)
        while isinstance(answer, PendingAnswer):
            assert isinstance(answer.ready, asyncio.Future | Wait)
            await asyncio.wait([asyncio.ensure_future(answer.ready)])
            answer = answer.make()
    except (ProtocolError, CloseConnection):
        return None
    assert not isinstance(answer, AnswerInParts)
    return answer


def check_answer(answer: bytes | None) -> None:
    """Every answer is one that a client can read, and none says that the broker met a bug."""
    if answer is None:
        return
    head, _ = native.open_response(answer[4:])
    assert head.error_code == 0 or head.error_code in ERRORS
    assert head.error_code != UnknownServerError.code
    assert -1 not in error_codes(msgpack.unpackb(answer[4:], object_pairs_hook=tuple)[2])


def error_codes(value: Any) -> Iterator[int]:
    """Every `error_code` in an undecoded body."""
    if isinstance(value, tuple):
        for key, inner in value:
            if key == "error_code":
                yield inner
            yield from error_codes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from error_codes(inner)


@pytest.fixture
async def filled(broker: Broker, client: Wire) -> Broker:
    """A broker that has something to answer with."""
    await client.call(create_topic("a", partitions=2))
    await client.call(produce("a", message_set(5, 6, 7)))
    return broker


@pytest.mark.parametrize("number", range(len(frames())))
async def test_every_truncation_of_a_request(filled: Broker, number: int) -> None:
    """fault4."""
    frame = frames()[number]
    for length in range(len(frame)):
        check_answer(await outcome(filled, frame[:length]))
    check_answer(await outcome(filled, frame))


@pytest.mark.parametrize("number", range(len(frames())))
async def test_every_flipped_bit_of_a_request(filled: Broker, number: int) -> None:
    """fault4."""
    frame = bytearray(frames()[number])
    for position in range(len(frame)):
        for bit in range(8):
            frame[position] ^= 1 << bit
            check_answer(await outcome(filled, bytes(frame)))
            frame[position] ^= 1 << bit


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, len(frames()) - 1), data=st.data())
async def test_random_damage(filled: Broker, number: int, data: st.DataObject) -> None:
    frame = bytearray(frames()[number])
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(frame)))
        end = data.draw(st.integers(start, min(start + 8, len(frame))))
        frame[start:end] = data.draw(st.binary(max_size=8))
    check_answer(await outcome(filled, bytes(frame)))


async def test_the_first_error_of_a_response_is_the_requests_error(
    broker: Broker, client: Wire
) -> None:
    await client.call(create_topic("a"))
    await client.call(fetch("a", (0, 0), (9, 0)))
    await client.call(fetch("a", (0, 0)))
    assert broker.figures.requests["fetch", "UNKNOWN_TOPIC_OR_PARTITION"] == 1
    assert broker.figures.requests["fetch", "NONE"] == 1


def test_first_error_of_a_body_without_codes() -> None:
    assert first_error(API_VERSIONS.response(error_code=0, api_keys=[])) == 0
    assert first_error(API_VERSIONS.response(error_code=35, api_keys=[])) == 35


@pytest.mark.parametrize("error", ERRORS.values(), ids=lambda error: error.name)
def test_every_error_of_the_table_keeps_its_code(error: type[CodedError]) -> None:
    assert Outcomes(RecordedEvents()).of(error("why"), api="x") == (error.code, "why")


@pytest.mark.parametrize("encoding", [native, kafka], ids=["native", "kafka"])
async def test_sets_are_let_go_of_before_they_are_durable(broker: Broker, encoding: Any) -> None:
    """Thousands of requests may wait, each for as long as it asked for."""
    log = broker.services.logs.find_or_create(("a", 0))
    log.hold_high_watermark(0)
    dispatcher = broker.dispatcher if encoding is native else broker.kafka_dispatcher
    version = PRODUCE.last_version(native=encoding is native)
    for number in range(3):  # those behind the first repeat it
        sent = produce("a", message_set(5), acks=-1)
        request = bytearray(encoding.encode_request(PRODUCE, version, number, "me", sent))[4:]
        (answer,) = dispatcher.answer(deque([request]), 1, CALLER)
        assert isinstance(answer, PendingAnswer)
        gc.collect()
        request.append(0)  # refused while there is a view of it
    log.hold_high_watermark(None)


@pytest.mark.parametrize("encoding", [native, kafka], ids=["native", "kafka"])
async def test_the_sets_of_a_large_request_are_not_copied(broker: Broker, encoding: Any) -> None:
    """Decision 51: to copy 60 MB holds the event loop for 40 ms."""
    dispatcher = broker.dispatcher if encoding is native else broker.kafka_dispatcher
    data = message_set(5, value=b"x" * LARGE_REQUEST_BYTES)
    sent = produce_to("a", [(number, data) for number in range(MAX_SMALL_REQUEST_VALUES)])
    version = PRODUCE.last_version(native=encoding is native)
    request = bytearray(encoding.encode_request(PRODUCE, version, 1, "me", sent))[4:]
    (answer,) = dispatcher.answer(deque([request]), 1, CALLER)
    assert isinstance(answer, PendingAnswer)
    with pytest.raises(BufferError):
        request.append(0)
    await until(answer.ready.done)


@pytest.mark.parametrize("encoding", [native, kafka], ids=["native", "kafka"])
async def test_sets_that_wait_for_the_same_have_one_answer(broker: Broker, encoding: Any) -> None:
    """Those side by side: answers have the order of requests."""
    for topic in "ab":
        log = broker.services.logs.find_or_create((topic, 0))
        log.appender.append(message_set(5))  # The first set of a segment is appended alone.
        log.hold_high_watermark(1)
    dispatcher = broker.dispatcher if encoding is native else broker.kafka_dispatcher
    version = PRODUCE.last_version(native=encoding is native)
    frames = deque(
        encoding.encode_request(
            PRODUCE, version, number, "me", produce(topic, message_set(5), acks=-1)
        )[4:]
        for number, topic in enumerate("aababbb")
    )
    answers = list(dispatcher.answer(frames, 7, CALLER))
    assert [answer.requests for answer in answers if isinstance(answer, PendingAnswer)] == [
        2,
        1,
        1,
        3,
    ]
    for topic in "ab":
        broker.services.logs.find_or_create((topic, 0)).hold_high_watermark(None)
    made = [answer.make() for answer in answers if isinstance(answer, PendingAnswer)]
    content = b"".join(one for one in made if isinstance(one, bytes))
    numbers = []
    while content:
        length = int.from_bytes(content[:4], "big")
        frame, content = content[4 : 4 + length], content[4 + length :]
        numbers.append(encoding.open_response(frame)[0].correlation_id)
    assert numbers == list(range(7))


async def test_an_answer_that_repeats_long_names_is_written_in_turns(
    client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 51: few things with long names take as long as many things with short ones."""
    begun: list[str] = []
    in_pieces = native.answer_in_pieces

    def answer_in_pieces(api: Api, *arguments: Any) -> Any:
        begun.append(api.name)
        return in_pieces(api, *arguments)

    monkeypatch.setattr(native, "answer_in_pieces", answer_in_pieces)
    for count, written in ((1, []), (100, [METADATA.name])):
        names = [f"{number}{'x' * 30_000}" for number in range(count)]
        topics = [MetadataTopic(name=name) for name in names]
        response = await client.call(MetadataRequest(topics=topics))
        assert [topic.name for topic in response.topics] == names
        assert begun == written


ANSWERS = st.builds(
    OffsetFetchResponse,
    error_code=st.sampled_from([0, 0, 30]),
    topics=st.lists(
        st.builds(
            OffsetFetchTopicResult,
            name=st.just("t"),
            partitions=st.lists(
                st.builds(
                    OffsetFetchPartitionResult,
                    partition=st.just(0),
                    error_code=st.sampled_from([0, 0, 0, 3, 29]),
                ),
                max_size=5,
            ),
        ),
        max_size=5,
    ),
    names=st.lists(st.just("n"), max_size=5),
)


@given(ANSWERS)
def test_a_large_answer_is_searched_for_errors_and_freed_in_pieces(
    answer: OffsetFetchResponse,
) -> None:
    """An answer with a million positions must not hold the event loop."""
    sizes = [len(topic.partitions) for topic in answer.topics]
    expected, topics = first_error(answer), list(answer.topics)
    results: list[int] = []

    def search() -> Iterator[None]:
        results.append((yield from first_error_in_pieces(answer)))

    pieces = sum(1 for _ in search())
    assert results == [expected]
    if not expected:
        assert pieces > len(sizes)
    freed = [len(topics), *(len(answer.topics) for _ in emptied(answer))]
    assert (answer.topics, answer.names) == ([], [])
    assert not any(topic.partitions for topic in topics)
    assert all(before - after <= 1 for before, after in pairwise(freed))


@pytest.mark.parametrize("encoding", [native, kafka], ids=["native", "kafka"])
async def test_the_positions_of_an_answer_are_freed_when_it_is_written(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, encoding: Any
) -> None:
    dispatcher = broker.dispatcher if encoding is native else broker.kafka_dispatcher
    partitions = [OffsetFetchPartitionResult(partition=number) for number in range(9_000)]
    response = OffsetFetchResponse(topics=[OffsetFetchTopicResult(name="t", partitions=partitions)])
    handlers = dict(HANDLERS) | {OFFSET_FETCH.key: lambda *_: response}
    monkeypatch.setattr(dispatcher, "_handlers", handlers)
    version = OFFSET_FETCH.last_version(native=encoding is native)
    asked = OffsetFetchRequest(group_id="g", topics=[])
    frame = encoding.encode_request(OFFSET_FETCH, version, 1, "me", asked)[4:]
    answer = dispatcher.answer_one(frame, CALLER)
    assert isinstance(answer, PendingAnswer)
    await until(answer.ready.done)
    made = answer.make()
    content = bytes(made) if isinstance(made, bytes) else b"".join(made.parts)
    _, body = encoding.open_response(content[4:])
    found = encoding.decode_body(OffsetFetchResponse, version, body)
    assert [each.partition for each in found.topics[0].partitions] == list(range(9_000))
    assert (response.topics, partitions) == ([], [])
