"""The quick ways through the native encoding say what the slow ones say, or leave it to them."""

import contextlib
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.log.produce import PRODUCE, ProduceRequest
from horolog.protocol.api.native.arranging import UNUSUAL as NOT_ARRANGED
from horolog.protocol.api.native.arranging import arranger
from horolog.protocol.api.native.decoding import FEW_ITEMS, UNUSUAL, decoder
from horolog.protocol.api.native.encoding import encoder
from horolog.protocol.api.native.frames import PackedBody, decode_body, encode_request, open_request
from horolog.protocol.api.native.plans import Refused, reader
from horolog.protocol.api.native.values import Part, array_head, binary, clipped_text, integer, text
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import (
    Array,
    Boolean,
    Data,
    Integer,
    Records,
    Text,
    fields_of,
)
from horolog.protocol.errors import InvalidRequest
from horolog.protocol.limits import MAX_REQUEST_VALUES, UNCHECKED_FRAME_BYTES
from horolog.testing.requests import fetch, produce


def values(wire_type: Any, version: int) -> st.SearchStrategy[Any]:
    """Any value that a declared type takes; numbers and texts of every length in bytes."""
    match wire_type:
        case Integer():
            edges = [1 << bits for bits in (5, 7, 8, 15, 16, 31, 32, 63) if bits < wire_type.bits]
            near = [n for edge in edges for n in (edge - 1, edge, -edge, -edge - 1)]
            inside = [n for n in near if wire_type.low <= n <= wire_type.high]
            return st.sampled_from(inside) | st.integers(wire_type.low, wire_type.high)
        case Boolean():
            return st.booleans()
        case Text():
            characters = st.text(st.characters(codec="utf-8"), max_size=9)
            some = characters | st.sampled_from(["x" * n for n in (31, 32, 255, 256)])
            return st.none() | some if wire_type.nullable else some
        case Records():
            return st.none() | st.binary(max_size=9) | st.sampled_from([bytes(255), bytes(256)])
        case Data():
            some_bytes = st.binary(max_size=9) | st.just(bytes(256))
            return st.none() | some_bytes if wire_type.nullable else some_bytes
        case Array():
            items = st.lists(values(wire_type.of, version), max_size=2)
            return st.none() | items if wire_type.nullable else items
    fields = fields_of(wire_type, version, native=True)
    return st.builds(wire_type, **{spec.name: values(spec.type, version) for spec in fields})


def messages(*which: str) -> st.SearchStrategy[Any]:
    """A version, and a request or a response that has it."""
    return st.one_of(
        [
            st.tuples(st.just(version), values(getattr(api, side), version))
            for api in APIS.values()
            for side in which
            for version in api.versions(native=True)
        ]
    )


def as_map(message: Any, version: int) -> dict[str, Any]:
    """What the package msgpack is to pack of a message."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        return as_map(value, version) if hasattr(value, "__dataclass_fields__") else value

    return {
        spec.name: plain(getattr(message, spec.name))
        for spec in fields_of(type(message), version, native=True)
        if not spec.native or getattr(message, spec.name) != spec.default_value()
    }


def encoded(message: Any, version: int) -> bytes:
    parts: list[Part] = []
    encoder(type(message), version)(message, parts)
    return b"".join(parts)  # type: ignore[arg-type]


def unpacked(body: bytes) -> Any:
    return msgpack.unpackb(body, object_pairs_hook=tuple)


@given(messages("request", "response"))
def test_encoders_give_the_bytes_of_msgpack(versioned: tuple[int, Any]) -> None:
    version, message = versioned
    assert encoded(message, version) == msgpack.packb(as_map(message, version))


@pytest.mark.parametrize("count", [0, 15, 16, 65_535, 65_536])
def test_counts_and_sizes_have_their_shortest_form(count: int) -> None:
    assert array_head(count) + b"\xc0" * count == msgpack.packb([None] * count)
    assert text("x" * count) == msgpack.packb("x" * count)
    assert b"".join(binary(bytes(count))) == msgpack.packb(bytes(count))  # type: ignore[arg-type]


@given(st.integers(-(2**63), 2**64 - 1))
def test_integers_have_their_shortest_form(value: int) -> None:
    assert integer(value) == msgpack.packb(value)


def test_long_sentences_are_cut() -> None:
    assert clipped_text("é" * 10, 5) == msgpack.packb("éé")
    assert clipped_text(None, 5) == b"\xc0"


@given(messages("request"), st.sampled_from([bytes, bytearray, memoryview]))
def test_what_is_encoded_has_the_usual_form(versioned: tuple[int, Any], form: Any) -> None:
    version, message = versioned
    body = encoded(message, version)
    assert decoder(type(message), version)(form(b"head" + body), 4) == (message, 4 + len(body))


def test_requests_without_native_fields_are_arranged(golden: Any) -> None:
    def without_native(message: Any) -> Any:
        for spec in fields_of(type(message), golden.version, native=True):
            value = getattr(message, spec.name)
            if spec.native:
                setattr(message, spec.name, spec.default_value())
            elif isinstance(spec.type, Array) and isinstance(spec.type.of, type):
                for item in value:
                    without_native(item)
        return message

    request = without_native(golden.request)
    value = unpacked(encoded(request, golden.version))
    assert arranger(type(request), golden.version)(value) == request


def agrees(struct: type[Any], version: int, body: bytes) -> None:
    """What a quick way accepts, the slow one accepts as the same."""
    quick = []
    try:
        message, end = decoder(struct, version)(body, 0)
        if end == len(body):
            quick.append(message)
    except UNUSUAL:
        pass
    try:
        value = unpacked(body)
    except ValueError:
        assert not quick
        return
    with contextlib.suppress(*NOT_ARRANGED):
        quick.append(arranger(struct, version)(value))
    try:
        slow = reader(struct, version, True)(value)
    except Refused:
        assert not quick
    else:
        assert all(message == slow for message in quick)


@given(messages("request"), st.data())
def test_nothing_is_accepted_that_is_refused(
    versioned: tuple[int, Any], data: st.DataObject
) -> None:
    version, message = versioned
    body = bytearray(encoded(message, version))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        end = at + data.draw(st.integers(0, 2))
        body[at:end] = data.draw(st.binary(max_size=2))
    agrees(type(message), version, bytes(body))


def test_nothing_is_accepted_that_is_refused_at_any_place(golden: Any) -> None:
    body = encoded(golden.request, golden.version)
    for at in range(len(body)):
        agrees(type(golden.request), golden.version, body[:at])
        for value in (0x00, 0x7F, 0x80, 0x90, 0xA1, 0xC0, 0xC3, 0xC4, 0xCC, 0xD3, 0xD9, 0xE0, 0xFF):
            changed = body[:at] + bytes([value]) + body[at + 1 :]
            agrees(type(golden.request), golden.version, changed)


PAIR = {"name": "a", "partitions": []}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"acks": 1, "topics": [PAIR], "timeout_ms": 5}, id="another order"),
        pytest.param({"acks": 1, "topics": [PAIR]}, id="a default left out"),
        pytest.param({"acks": 1, "timeout_ms": 5, "topics": [list(PAIR.items())]}, id="no map"),
        pytest.param([["acks", 1], ["timeout_ms", 5], ["topics", []]], id="pairs, but no map"),
        pytest.param({"acks": True, "timeout_ms": 5, "topics": []}, id="boolean"),
        pytest.param({"acks": 1.0, "timeout_ms": 5, "topics": []}, id="float"),
        pytest.param({"acks": 1, "timeout_ms": 2**31, "topics": []}, id="out of range"),
    ],
)
def test_unusual_bodies(body: Any) -> None:
    packed = msgpack.packb(body)
    agrees(ProduceRequest, 2, packed)
    agrees(ProduceRequest, 2, packed.replace(b"timeout_ms", b"acks\xa4acks_"))


@pytest.mark.parametrize("more", [0, 1])
def test_strings_at_their_limit(more: int) -> None:
    name = "x" * (32_767 + more)
    agrees(ProduceRequest, 2, encoded(produce(name, b""), 2))
    assert (decoded_or_none(produce(name, b"")) is None) == bool(more)


def decoded_or_none(request: Any) -> Any:
    """What the broker makes of a produce request in a frame that is not unpacked."""
    frame = encode_request(PRODUCE, 2, 1, None, request)[4:]
    assert len(frame) > UNCHECKED_FRAME_BYTES
    try:
        return decode_body(ProduceRequest, 2, open_request(frame)[1])
    except InvalidRequest:
        return None


def test_a_record_set_is_a_view_that_can_be_written_to() -> None:
    frame = bytearray(encode_request(PRODUCE, 2, 1, None, produce("a", b"x" * 5000))[4:])
    _, raw = open_request(frame)
    assert isinstance(raw, PackedBody)
    records: Any = decode_body(ProduceRequest, 2, raw).topics[0].partitions[0].records
    records[0] = ord("y")
    assert frame.endswith(b"y" + b"x" * 4999)


def most_values(wire_type: Any) -> int:
    """Values of the largest message whose arrays all have `FEW_ITEMS`, keys counted too."""
    match wire_type:
        case Array():
            return 1 + FEW_ITEMS * most_values(wire_type.of)
        case type():
            fields = fields_of(wire_type, 1 << 15, native=True)
            return 1 + sum(1 + most_values(spec.type) for spec in fields)
    return 1


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_few_items_are_few_enough(api: Any) -> None:
    assert 5 + most_values(api.request) <= MAX_REQUEST_VALUES


def test_many_items_in_a_large_frame_are_counted_first() -> None:
    request = fetch("a", *[(0, 0)] * (FEW_ITEMS + 1))
    body = encoded(request, 3)
    decode = decoder(type(request), 3)
    assert decode(body, 0) == (request, len(body))
    with pytest.raises(UNUSUAL):
        decode(body + bytes(MAX_REQUEST_VALUES), 0)
