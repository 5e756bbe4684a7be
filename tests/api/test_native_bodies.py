"""Bodies of the native encoding, both ways, against the package msgpack and the declarations."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from horolog.protocol.api.cluster.replicate import ReplicateResponse
from horolog.protocol.api.log.produce import PRODUCE, ProduceRequest
from horolog.protocol.api.native import decoding, frames
from horolog.protocol.api.native.decoding import WRONG, decoder, whole_request
from horolog.protocol.api.native.faults import fault_of
from horolog.protocol.api.native.frames import (
    decode_body,
    encode_request,
    open_request,
    packed_field,
)
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import (
    Array,
    Boolean,
    Data,
    Float,
    Integer,
    Records,
    Text,
    WireType,
    fields_of,
    structs_of,
)
from horolog.protocol.api.writing import clip, in_memory
from horolog.protocol.errors import InvalidRequest
from horolog.protocol.limits import MAX_CLIENT_ID_BYTES, MAX_REQUEST_VALUES
from horolog.protocol.records import kernel
from horolog.protocol.records.kernel import reference
from horolog.protocol.records.kernel.terms import FieldKind
from horolog.testing.requests import produce

from .conftest import SomeOf


def values(wire_type: Any, version: int) -> st.SearchStrategy[Any]:
    """Any value that a declared type takes; numbers and texts of every length in bytes."""
    match wire_type:
        case Integer():
            edges = [1 << bits for bits in (5, 7, 8, 15, 16, 31, 32, 63) if bits < wire_type.bits]
            near = [n for edge in edges for n in (edge - 1, edge, -edge, -edge - 1)]
            inside = [n for n in near if wire_type.low <= n <= wire_type.high]
            return st.sampled_from(inside) | st.integers(wire_type.low, wire_type.high)
        case Float():
            return st.floats(allow_nan=False)
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
            most = min(2, wire_type.max_items)
            items = st.lists(values(wire_type.of, version), max_size=most)
            return st.none() | items if wire_type.nullable else items
    fields = fields_of(wire_type, version, native=True)
    return st.builds(wire_type, **{spec.name: values(spec.type, version) for spec in fields})


def messages(*which: str) -> st.SearchStrategy[Any]:
    """A version, and a request or a response that has it. Made where it is drawn from: each process
    of a run imports this."""
    return st.deferred(lambda: _messages(*which))


def _messages(*which: str) -> st.SearchStrategy[Any]:
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
        return as_map(value, version) if isinstance(value, msgspec.Struct) else value

    return {
        spec.name: plain(getattr(message, spec.name))
        for spec in fields_of(type(message), version, native=True)
        if not spec.native or getattr(message, spec.name) != spec.default_value()
    }


BOTH_FORMS = pytest.mark.parametrize("form", [kernel, reference], ids=["kernel", "reference"])


def encoded(message: Any, version: int) -> bytes:
    """The bytes of a message alone."""
    return alone(kernel, packed_field(type(message), version), message)


def alone(form: Any, field: Any, value: Any) -> bytes:
    """What `field` writes of a value."""
    frame = in_memory(form.PackedMessage([("", field, ())]).frame(value))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame[4] == 0x91, "an array of one"
    return frame[5:]


def packed(form: Any, kind: FieldKind, value: Any, clip: Any = None) -> bytes:
    """A value that is no message."""
    item = form.PackedField(FieldKind.INT32.value, None, None, None)
    field = form.PackedField(kind.value, clip, None, item if kind is FieldKind.ARRAY else None)
    return alone(form, field, value)


@given(messages("request", "response"))
def test_encoders_give_the_bytes_of_msgpack(versioned: tuple[int, Any]) -> None:
    version, message = versioned
    assert encoded(message, version) == msgpack.packb(as_map(message, version))


@BOTH_FORMS
@pytest.mark.parametrize("count", [0, 15, 16, 31, 32, 255, 256, 65_535, 65_536])
def test_counts_and_sizes_have_their_shortest_form(form: Any, count: int) -> None:
    assert packed(form, FieldKind.ARRAY, [None] * count) == msgpack.packb([None] * count)
    assert packed(form, FieldKind.TEXT, "x" * count) == msgpack.packb("x" * count)
    for kind in (FieldKind.BYTES, FieldKind.VIEW):
        assert packed(form, kind, bytes(count)) == msgpack.packb(bytes(count))


@BOTH_FORMS
@given(value=st.integers(-(2**63), 2**63 - 1))
def test_integers_have_their_shortest_form(form: Any, value: int) -> None:
    assert packed(form, FieldKind.INT64, value) == msgpack.packb(value)


@BOTH_FORMS
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_integers_of_more_bits_are_refused(form: Any, value: int) -> None:
    with pytest.raises(OverflowError):
        packed(form, FieldKind.INT64, value)


@BOTH_FORMS
def test_long_sentences_are_cut(form: Any) -> None:
    cut = partial(clip, max_bytes=5)
    assert packed(form, FieldKind.TEXT, "é" * 10, cut) == msgpack.packb("éé")
    assert packed(form, FieldKind.TEXT, None, cut) == b"\xc0"


@given(messages("request", "response"), st.sampled_from([bytes, bytearray, memoryview]))
def test_what_is_encoded_is_decoded(versioned: tuple[int, Any], form: Any) -> None:
    version, message = versioned
    for strict in (True, False):
        decoded = decoder(type(message), version, strict)(form(encoded(message, version)))
        assert decoded == message
        assert isinstance(decoded, type(message))


class Unfit(Exception):
    """A value is not what was declared."""


def fitted(value: Any, wire_type: WireType | type[Any], version: int) -> Any:  # noqa: C901 - a case a type
    """What an unpacked value means, by the declaration alone."""

    def need(condition: bool) -> Any:
        if not condition:
            raise Unfit
        return value

    match wire_type:
        case Integer():
            return need(type(value) is int and wire_type.low <= value <= wire_type.high)
        case Float():
            return float(need(type(value) in (int, float)))
        case Boolean():
            return need(type(value) is bool)
        case Records():
            return need(value is None or type(value) is bytes)
        case Text():
            if value is None and wire_type.nullable:
                return None
            return need(type(value) is str and len(value.encode()) <= wire_type.max_bytes)
        case Data():
            if value is None and wire_type.nullable:
                return None
            return need(type(value) is bytes and len(value) <= wire_type.max_bytes)
        case Array():
            if value is None and wire_type.nullable:
                return None
            need(type(value) is list and len(value) <= wire_type.max_items)
            return [fitted(item, wire_type.of, version) for item in value]
    need(type(value) is dict)
    specs = fields_of(wire_type, version, native=True)
    need(value.keys() <= {spec.name for spec in specs})
    need({spec.name for spec in specs if spec.required} <= value.keys())
    names = [spec for spec in specs if spec.name in value]
    given = {spec.name: fitted(value[spec.name], spec.type, version) for spec in names}
    return wire_type(**given)


def agrees(struct: type[Any], version: int, body: bytes) -> None:
    """The decoder takes what the package msgpack reads and the declaration allows; what else there
    is has words for what is wrong with it."""
    expected: Any
    try:
        # A key that comes twice has its last value.
        expected = fitted(msgpack.unpackb(body), struct, version)
    except (Unfit, ValueError):
        expected = None
    try:
        found = decoder(struct, version, True)(body)
    except WRONG:
        found = None
        fault = fault_of(body, struct, version, strict=True, max_values=MAX_REQUEST_VALUES)
        assert fault != "the body is not as declared"
    assert found == expected


@given(messages("request"), st.data())
def test_bytes_that_were_changed(versioned: tuple[int, Any], data: st.DataObject) -> None:
    version, message = versioned
    body = bytearray(encoded(message, version))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        end = at + data.draw(st.integers(0, 2))
        body[at:end] = data.draw(st.binary(max_size=2))
    agrees(type(message), version, bytes(body))


OPENINGS = b"\x00\x7f\x80\x90\xa1\xc0\xc3\xc4\xcc\xd3\xd9\xe0\xff"
"""First bytes of values of each kind."""


def test_one_byte_changed_at_any_place(golden: Any, some_of: SomeOf) -> None:
    body = encoded(golden.request, golden.version)
    for at in range(len(body)):
        agrees(type(golden.request), golden.version, body[:at])
        for value in some_of(OPENINGS, 4):
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
    """What the broker makes of a produce request."""
    frame = encode_request(PRODUCE, 2, 1, None, request)[4:]
    try:
        return decode_body(ProduceRequest, 2, open_request(frame)[1])
    except InvalidRequest:
        return None


def test_a_record_set_is_a_view_that_can_be_written_to() -> None:
    frame = bytearray(encode_request(PRODUCE, 2, 1, None, produce("a", b"x" * 5000))[4:])
    _, raw = open_request(frame)
    records: Any = decode_body(ProduceRequest, 2, raw).topics[0].partitions[0].records
    records[0] = ord("y")
    assert frame.endswith(b"y" + b"x" * 4999)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_everything_declared_has_a_limit(api: Any) -> None:
    """Without one msgspec would read five million topics, which take 765 MB."""

    def bounded(wire_type: Any) -> bool:
        match wire_type:
            case Array():
                return 0 < wire_type.max_items <= 10_000_000 and bounded(wire_type.of)
            case Text() | Data():
                return 0 < wire_type.max_bytes <= 1 << 20
        return True

    for struct in (*structs_of(api.request), *structs_of(api.response)):
        for version in api.versions(native=True):
            assert all(bounded(spec.type) for spec in fields_of(struct, version, native=True))


def unbounded(found: Any, where: str = "") -> list[str]:
    """The parts of a type that msgspec would read without a limit. `Raw` and views are none: they
    are bytes of the frame."""
    within: dict[str, Any] = {}
    missing = False
    match found:
        case inspect.StrType() | inspect.BytesType():
            missing = found.max_length is None
        case inspect.IntType():
            missing = (found.ge is None and found.gt is None) or (found.le is None)
        case inspect.ListType():
            missing, within = found.max_length is None, {"[]": found.item_type}
        case inspect.TupleType():
            within = {f"[{n}]": item for n, item in enumerate(found.item_types)}
        case inspect.UnionType():
            within = {"|" + type(one).__name__: one for one in found.types}
        case inspect.StructType() | inspect.NamedTupleType():
            within = {f".{field.encode_name}": field.type for field in found.fields}
        case (
            inspect.BoolType()
            | inspect.FloatType()
            | inspect.LiteralType()
            | inspect.NoneType()
            | inspect.MemoryViewType()
            | inspect.RawType()
        ):
            pass
        case _:
            missing = True
    wrong = [f"{where}: {found}"] if missing else []
    return wrong + [one for name, of in within.items() for one in unbounded(of, where + name)]


def types_read() -> Iterator[Any]:
    """What every `Decoder` of the package reads."""
    for fixed in (frames._read_request, frames._read_response, frames._read_error):
        yield fixed.__self__.type  # type: ignore[union-attr]
    for api in APIS.values():
        for version in api.versions(native=True):
            yield whole_request(api.request, version, frames.Request)
            for struct in (api.request, api.response):
                for strict in (False, True):
                    yield decoding.struct_in_version(struct, version, strict)
            for struct in structs_of(api.request):
                yield decoding._split_struct(struct, version)
                for spec in fields_of(struct, version, native=True):
                    yield decoding._python_type(spec.type, version, True)


def test_every_type_that_is_read_has_its_limits() -> None:
    types = list(types_read())
    assert [wrong for one in types for wrong in unbounded(inspect.type_info(one))] == []
    assert len(types) > 100


def test_no_other_decoder_is_made() -> None:
    package = Path(decoding.__file__).parents[3]
    modules = [path.relative_to(package) for path in package.rglob("*.py")]
    made = Counter(
        path.as_posix()
        for path in modules
        if not {"tests", "build", ".venv"} & set(path.parts)
        for _ in re.finditer(
            r"\bDecoder\(|msgspec\.convert\(|\bdecode\([^)]*\btype=",
            (package / path).read_text("utf-8"),
        )
    )
    assert made == {
        "protocol/api/native/decoding.py": 4,
        "protocol/api/native/faults.py": 2,  # of a body whose values were counted
        "protocol/api/native/frames.py": 3,
        "cli/consume/ordering.py": 1,  # of files that the same command wrote
    }


@pytest.mark.parametrize(
    ("read", "unlimited"),
    [
        (str, 1),
        (list[Annotated[int, msgspec.Meta(ge=0, le=1)]], 1),
        (tuple[str, int], 2),
        (dict[str, int], 1),
        (Any, 1),
        (tuple[Literal["a"], bool, float | None, msgspec.Raw], 0),
    ],
)
def test_a_type_without_a_limit_is_seen(read: Any, unlimited: int) -> None:
    assert len(unbounded(inspect.type_info(read))) == unlimited


@pytest.mark.parametrize("name", ["x" * 40_000, "é" * 20_000, "x" * 32_767, "é" * 16_383])
def test_texts_are_measured_in_bytes(name: str) -> None:
    body = encoded(produce(name, b""), 2)
    agrees(ProduceRequest, 2, body)


def messages_with_a_text(
    struct: type[Any], version: int, text: Callable[[Text], str]
) -> Iterator[Any]:
    """Messages of a class of which one field, another in each, has `text` of its type; there is
    something in every other field."""
    specs = list(fields_of(struct, version, native=True))
    filled = {spec.name: spec.default_value() for spec in specs}
    for spec in specs:
        is_array = isinstance(spec.type, Array)
        inner = spec.type.of if isinstance(spec.type, Array) else spec.type
        if isinstance(inner, Text):
            filled[spec.name] = ["a"] if is_array else "a"
        elif isinstance(inner, type):
            filled[spec.name] = [_filled(inner, version)]
    for spec in specs:
        is_array = isinstance(spec.type, Array)
        inner = spec.type.of if isinstance(spec.type, Array) else spec.type
        found: Iterable[Any] = ()
        if isinstance(inner, Text):
            found = (text(inner),)
        elif isinstance(inner, type):
            found = messages_with_a_text(inner, version, text)
        for one in found:
            changed = ["a", one] if isinstance(inner, Text) else [_filled(inner, version), one]
            yield struct(**filled | {spec.name: changed if is_array else one})


def _filled(struct: Any, version: int) -> Any:
    return next(messages_with_a_text(struct, version, lambda _: "a"), None) or struct(
        **{spec.name: spec.default_value() for spec in fields_of(struct, version, native=True)}
    )


def test_every_text_is_measured_in_bytes() -> None:
    checked = 0
    for api in APIS.values():
        for struct, version in product((api.request, api.response), api.versions(native=True)):
            check = decoding._texts_of(struct, version).check
            fitting = messages_with_a_text(struct, version, lambda of: "é" * (of.max_bytes // 2))
            longer = messages_with_a_text(struct, version, lambda of: "é" * (of.max_bytes // 2 + 1))
            for fits, too_long in zip(fitting, longer, strict=True):
                check(fits)
                with pytest.raises(ValueError, match="has more than"):
                    check(too_long)
                checked += 1
    assert checked > 250


@pytest.mark.parametrize(("bytes_more", "is_read"), [(0, True), (1, False)])
def test_a_client_id_is_measured_in_bytes(bytes_more: int, is_read: bool) -> None:
    read = frames.reader(PRODUCE, 2)
    client_id = "é" * (MAX_CLIENT_ID_BYTES // 2) + "a" * (MAX_CLIENT_ID_BYTES % 2 + bytes_more)
    frame = frames.encode_request(PRODUCE, 2, 7, client_id, produce("a", b""))
    assert (read(frame[4:]) is not None) == is_read


def test_a_frame_of_too_many_values_is_counted_first() -> None:
    body = msgpack.packb({"acks": 1, "topics": [], "more": [0] * MAX_REQUEST_VALUES})
    frame = msgpack.packb([0, 2, 1, None]).replace(b"\x94", b"\x95") + body
    _, raw = open_request(frame)
    with pytest.raises(InvalidRequest, match=f"more than {MAX_REQUEST_VALUES} values"):
        decode_body(ProduceRequest, 2, raw)


@pytest.mark.parametrize("key", ["stored", "producer_state"])
def test_what_is_kept_in_memory_is_not_read(key: str) -> None:
    part = {
        "topic": "t",
        "partition": 0,
        "log_start_offset": 0,
        "first_visible_offset": 0,
        "high_watermark": 0,
        "sync_to": 0,
        key: {"of": "another"},
    }
    body = msgspec.msgpack.encode({"answers": 2, "epoch": 1, "parts": [part]})
    response = decoding.decoder(ReplicateResponse, 1, False)(body)
    assert getattr(response.parts[0], key) is None
    with pytest.raises(decoding.WRONG):
        decoding.decoder(ReplicateResponse, 1, True)(body)
