"""Large messages in pieces: the same messages and bytes as at once, and no long piece."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Any, ClassVar

import pytest

from horolog.protocol.api import pieces
from horolog.protocol.api.encodings import Encoding
from horolog.protocol.api.framing import ProtocolError
from horolog.protocol.api.groups.describe_groups import DescribeGroupsRequest
from horolog.protocol.api.groups.join_group import JoinGroupMember, JoinGroupResponse
from horolog.protocol.api.kafka import compact
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.kafka import frames as kafka_pieces
from horolog.protocol.api.log.fetch import (
    FETCH,
    FetchPartitionResult,
    FetchResponse,
    FetchTopicResult,
)
from horolog.protocol.api.log.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResult,
)
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.native import frames as native_pieces
from horolog.protocol.api.pieces import finish, hash_texts, weigher
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import Api, Array, Text, fields_of
from horolog.protocol.api.topics.metadata import (
    METADATA,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    MetadataTopicResult,
)
from horolog.protocol.api.writing import in_memory
from horolog.protocol.errors import InvalidRequest
from horolog.testing.requests import fetch, list_offsets, produce_to

from .conftest import example

ENCODINGS = [pytest.param(native, id="native"), pytest.param(kafka, id="kafka")]


def several(wire_type: Any, version: int, salt: int = 1) -> Any:
    """A value with three items in each array that may have them."""
    match wire_type:
        case Array():
            count = min(3, wire_type.max_items)
            return [several(wire_type.of, version, salt + number) for number in range(count)]
        case Text():
            return f"é{salt}"
        case type():
            fields = fields_of(wire_type, version, native=True)
            return wire_type(**{each.name: several(each.type, version, salt) for each in fields})
    return example(wire_type, version, salt)


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that every message of some items is a large one."""
    for module in (pieces, kafka_pieces):
        monkeypatch.setattr(module, "MAX_PIECE_VALUES", 2)
    monkeypatch.setattr(native_pieces, "_AT_ONCE_BYTES", 3)
    monkeypatch.setattr(compact, "_PIECE_ITEMS", 1)


def versions(encoding: Encoding) -> Iterator[tuple[Any, int]]:
    for api in APIS.values():
        for version in api.versions(native=encoding.NATIVE):
            yield api, version


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_requests_are_what_they_are_at_once(encoding: Encoding) -> None:
    for api, version in versions(encoding):
        for body in (several(api.request, version), example(api.request, version)):
            frame = encoding.encode_request(api, version, 7, "someone", body)[4:]
            head, raw = encoding.open_request(frame)
            at_once = encoding.decode_body(api.request, head.version, raw)
            in_pieces = finish(encoding.decode_in_pieces(api.request, head.version, raw))
            assert in_pieces == at_once, (api.name, version)
            assert type(in_pieces).__name__ == api.request.__name__


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_broken_requests_have_the_same_faults(encoding: Encoding) -> None:
    chance = Random(1)
    for api, version in versions(encoding):
        frame = encoding.encode_request(api, version, 7, "", several(api.request, version))[4:]
        body = encoding.open_request(frame)[1].start
        for _ in range(30 if body < len(frame) else 0):
            broken = bytearray(frame)
            broken[chance.randrange(body, len(frame))] = chance.choice((0, 1, 0x7F, 0xFF, 0xC1))
            if chance.random() < 0.2:
                del broken[chance.randrange(body, len(frame)) :]
            said = []
            for decode in (
                encoding.decode_body,
                lambda *of: finish(encoding.decode_in_pieces(*of)),
            ):
                try:
                    _, raw = encoding.open_request(bytes(broken))
                    said.append(decode(api.request, version, raw))
                except InvalidRequest as error:
                    said.append(error.message)
                except ProtocolError as error:
                    said.append(str(error))
            assert said[0] == said[1], (api.name, version, bytes(broken))


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_answers_are_what_they_are_at_once(encoding: Encoding) -> None:
    for api, version in versions(encoding):
        for body in (several(api.response, version), example(api.response, version)):
            frame = encoding.encode_response(7, api, version, body)
            written = finish(encoding.answer_in_pieces(api, version, 7, body))
            assert in_memory(written) == frame, (api.name, version)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(
            list_offsets("t", *((number, -1) for number in range(12_000))), id="one topic"
        ),
        pytest.param(fetch("t", *((number, 0) for number in range(6_000))), id="fetch"),
    ],
)
def test_a_piece_is_a_part_of_a_request(encoding: Encoding, request_: Any) -> None:
    api = next(api for api in APIS.values() if api.request is type(request_))
    version = api.last_version(native=encoding.NATIVE)
    _, raw = encoding.open_request(encoding.encode_request(api, version, 1, "", request_)[4:])
    steps = encoding.decode_in_pieces(api.request, version, raw)
    assert sum(1 for _ in steps) >= 20


def test_record_sets_of_a_large_request_are_views_of_its_frame() -> None:
    sets = [(number, b"x" * 100) for number in range(9_000)]
    api = APIS[0]
    for encoding in (native, kafka):
        version = api.last_version(native=encoding.NATIVE)
        frame = bytearray(encoding.encode_request(api, version, 1, "", produce_to("t", sets))[4:])
        _, raw = encoding.open_request(frame)
        found = finish(encoding.decode_in_pieces(api.request, version, raw))
        records = found.topics[0].partitions[8_999].records
        records[0] = ord("y")
        assert b"y" + b"x" * 99 in frame


class Elsewhere:
    """Bytes of a file, as far as an encoder looks at them."""

    def __len__(self) -> int:
        return 10


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_is_in_files_stays_a_part_of_its_own(
    encoding: Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "MAX_PIECE_VALUES", 50)
    version = FETCH.last_version(native=encoding.NATIVE)
    body: FetchResponse = several(FETCH.response, version)
    results = [result for topic in body.topics for result in topic.partitions]
    stretches = [Elsewhere(), Elsewhere()]
    for result, stretch in zip(results, stretches, strict=False):
        result.records = stretch  # type: ignore[assignment]
    written = finish(encoding.answer_in_pieces(FETCH, version, 7, body))
    (at_once,) = encoding.answers_encoder(FETCH, version)((7,), (body,))
    assert isinstance(written, list)
    assert isinstance(at_once, list)
    assert [part for part in written if isinstance(part, Elsewhere)] == stretches

    def joined(parts: Any) -> bytes:
        return b"".join(bytes(10) if isinstance(part, Elsewhere) else part for part in parts)

    assert joined(written) == joined(at_once)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_short_record_sets_are_joined(encoding: Encoding) -> None:
    """Each part of an answer takes a call of the system to send."""
    version = FETCH.last_version(native=encoding.NATIVE)
    records: Any = bytearray(b"x" * 100)
    results = [FetchPartitionResult(partition=each, records=records) for each in range(5_000)]
    body = FetchResponse(topics=[FetchTopicResult(name="t", partitions=results)])
    written = finish(encoding.answer_in_pieces(FETCH, version, 7, body))
    (at_once,) = encoding.answers_encoder(FETCH, version)((7,), (body,))
    assert isinstance(written, list)
    assert len(written) < 30
    parts: Any = [at_once] if isinstance(at_once, bytes) else at_once
    assert b"".join(written) == b"".join(parts)  # type: ignore[arg-type] # none is in a file


def topic(partitions: int) -> MetadataTopicResult:
    return MetadataTopicResult(
        name="t",
        partitions=[
            MetadataPartition(partition=number, replica_nodes=[1, 2], isr_nodes=[1])
            for number in range(partitions)
        ],
    )


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("topics", [[topic(4_000)], [topic(2)] * 1_000])
def test_a_piece_is_a_part_of_an_answer(
    encoding: Encoding, topics: list[MetadataTopicResult]
) -> None:
    body = MetadataResponse(brokers=[], topics=topics)
    api = APIS[3]
    for version in api.versions(native=encoding.NATIVE):
        steps = encoding.answer_in_pieces(api, version, 1, body)
        assert sum(1 for _ in steps) > 20


def test_bytes_weigh_too() -> None:
    body = JoinGroupResponse(
        generation_id=1,
        protocol_name="",
        leader="",
        member_id="",
        members=[JoinGroupMember(member_id="m", metadata=bytes(1 << 20)) for _ in range(4)],
    )
    assert weigher(JoinGroupResponse)(body, 1 << 30) > 4 * (1 << 20) // 200
    assert sum(1 for _ in native.answer_in_pieces(APIS[11], 1, 1, body)) >= 4
    assert sum(1 for _ in kafka.answer_in_pieces(APIS[11], 1, 1, body)) >= 4


def test_what_has_no_bound_of_its_own_is_weighed() -> None:
    """Every array and every run of bytes of a response."""
    for api in APIS.values():
        weigh = weigher(api.response)
        for version in api.versions(native=True):
            assert weigh(several(api.response, version), 1 << 30) >= _items(api.response, version)


def _items(struct: type[Any], version: int) -> int:
    found = 0
    for each in fields_of(struct, version, native=True):
        if isinstance(each.type, Array):
            inner = each.type.of
            count = min(3, each.type.max_items)
            found += count * (1 + (_items(inner, version) if isinstance(inner, type) else 0))
    return found


class HashedText(str):
    """A text that notes in `hashed` that its hash was computed."""

    __slots__ = ()
    hashed: ClassVar[list[int]] = []

    def __hash__(self) -> int:
        self.hashed.append(len(self))
        return super().__hash__()


def test_the_hashes_of_all_texts_are_computed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HashedText, "hashed", [])
    of_topics = [
        MetadataTopicResult(error_code=0, name=HashedText("x" * 32_000), partitions=[])
        for _ in range(200)
    ]
    members: list[str] = [HashedText("m" * 16_000) for _ in range(200)]
    for message, whole_bytes in (
        (
            MetadataResponse(brokers=[], topics=of_topics, cluster_id=HashedText("c")),
            200 * 32_000 + 1,
        ),
        (DescribeGroupsRequest(groups=members), 200 * 16_000),
    ):
        HashedText.hashed.clear()
        seen_bytes = [0, *(sum(HashedText.hashed) for _ in hash_texts(message))]
        assert sum(HashedText.hashed) == whole_bytes
        assert max(b - a for a, b in pairwise([*seen_bytes, whole_bytes])) < 1_100_000


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_few_items_with_long_texts_are_many_pieces(
    encoding: Encoding, peak_bytes: Callable[[], int]
) -> None:
    """Decision 51: 60 MB take too long to be copied at once."""
    name = "x" * 32_000
    asked: tuple[tuple[Api, Any], ...] = (
        (METADATA, MetadataRequest(topics=[MetadataTopic(name=name)] * 200)),
        (
            LIST_OFFSETS,
            ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=[])] * 200),
        ),
    )
    for api, body in asked:
        version = api.last_version(native=encoding.NATIVE)
        _, raw = encoding.open_request(encoding.encode_request(api, version, 1, "", body)[4:])
        reading = encoding.decode_in_pieces(api.request, version, raw)
        peak_bytes()
        next(reading)
        next(reading)
        assert peak_bytes() < 3_000_000
        assert finish(reading) == body
    answer = ListOffsetsResponse(topics=[ListOffsetsTopicResult(name=name, partitions=[])] * 200)
    writing = encoding.answer_in_pieces(api, version, 1, answer)
    peak_bytes()
    if encoding is kafka:
        for _ in range(5):
            next(writing)
        assert peak_bytes() < 3_000_000
    assert len(in_memory(finish(writing))) > 200 * 32_000
