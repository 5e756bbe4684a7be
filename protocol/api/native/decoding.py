"""Decoders of the native encoding: bytes to a message object, by msgspec.

For each version of a message class there is a struct derived from it, with the types and limits of
the fields, which are checked while the bytes are read. Fields that the version does not have keep
their defaults, because no key has their names. A decoder raises one of `WRONG` for invalid bytes,
without saying in the protocol's terms what is wrong; `faults` finds that out.
"""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec.msgpack import Decoder

from ...limits import MAX_DEPTH
from ...records.kernel import RequestReader, TextLimits
from ..framing import Frame
from ..schema import (
    INT64,
    Array,
    Boolean,
    Data,
    Float,
    Integer,
    Records,
    Text,
    WireType,
    all_fields,
    fields_of,
    unsent_of,
)

WRONG: Final[tuple[type[Exception], ...]] = (
    msgspec.DecodeError,
    RecursionError,
    UnicodeDecodeError,
    ValueError,
)
"""Errors that a decoder raises."""

Decode = Callable[[Frame], Any]


def _make_decoder(struct: type[Any], version: int, strict: bool) -> Decode:
    decode: Decode = Decoder(struct_in_version(struct, version, strict)).decode
    texts = _texts_of(struct, version)
    shortest = texts.shortest

    def checked(body: Frame) -> Any:
        message = decode(body)
        if len(body) > shortest:
            texts.check(message)
        return message

    return checked


# The casts are needed because mypy does not consider a class hashable.
decoder: Final = cast(Callable[[type[Any], int, bool], Decode], cache(_make_decoder))
"""Returns the decoder of a message class in a version (cached). A strict decoder refuses a key that
the version does not have; others skip it."""


def _make_item_decoder(of: WireType | type[Any], version: int) -> Decode:
    if isinstance(of, type):
        return decoder(of, version, True)
    decode: Decode = Decoder(_python_type(of, version, True)).decode
    if not isinstance(of, Text):
        return decode
    most_bytes = of.max_bytes

    def checked(content: Frame) -> Any:
        text = decode(content)
        if text is not None and len(text.encode()) > most_bytes:
            raise ValueError(f"a text has more than {most_bytes} bytes")
        return text

    return checked


item_decoder: Final = cast(Callable[[WireType | type[Any], int], Decode], cache(_make_item_decoder))
"""Returns the decoder of one item of a request's array (cached)."""


def _make_splitter(struct: type[Any], version: int) -> Decode:
    decode: Decode = Decoder(_split_struct(struct, version)).decode
    specs = fields_of(struct, version, native=True)
    texts = [(spec.name, spec.type.max_bytes) for spec in specs if isinstance(spec.type, Text)]
    limits = TextLimits(texts)

    def checked(content: Frame) -> Any:
        message = decode(content)
        limits.check(message)
        return message

    return checked


splitter: Final = cast(Callable[[type[Any], int], Decode], cache(_make_splitter))
"""Returns a decoder of a request that leaves arrays as their bytes (cached); `item_decoder` decodes
their items. The result has the fields of the class, but is not an instance of it."""


def _split_struct(struct: type[Any], version: int) -> type[Any]:
    in_version = {spec.name for spec in fields_of(struct, version, native=True)}
    specs = all_fields(struct)

    return msgspec.defstruct(
        struct.__name__,
        [
            spec.declared(
                msgspec.Raw
                if isinstance(spec.type, Array)
                else _python_type(spec.type, version, True)
            )
            for spec in specs
        ],
        kw_only=True,
        gc=False,
        forbid_unknown_fields=True,
        rename={spec.name: f"-{spec.name}" for spec in specs if spec.name not in in_version},
        module=struct.__module__,
    )


def request_reader(
    struct: type[Any],
    version: int,
    around: type[Any],
    begin: bytes,
    most_values: int,
    client_id_bytes: int,
) -> RequestReader:
    """Return the reader of whole requests that start with `begin` and have at most `most_values`
    values. The results are structs derived from `around`, whose body is a message of the class in
    the version."""
    decode = Decoder(whole_request(struct, version, around)).decode
    texts = TextLimits([("client_id", client_id_bytes), ("body", _texts_of(struct, version))])
    return RequestReader(decode, WRONG, begin, most_values, MAX_DEPTH, texts)


def whole_request(struct: type[Any], version: int, around: type[Any]) -> type[Any]:
    """Return the struct that `request_reader` decodes."""
    body = struct_in_version(struct, version, True)
    return msgspec.defstruct(around.__name__, [("body", body)], bases=(around,), gc=False)


def _make_struct(struct: type[Any], version: int, strict: bool) -> type[Any]:
    in_version = {spec.name for spec in fields_of(struct, version, native=True)}
    specs, unsent = all_fields(struct), unsent_of(struct)
    return msgspec.defstruct(
        struct.__name__,
        [
            *(spec.declared(_python_type(spec.type, version, strict)) for spec in specs),
            *((name, None, None) for name in unsent),
        ],
        bases=(struct,),
        kw_only=True,
        gc=False,
        forbid_unknown_fields=strict,
        # No key can have such a name.
        rename={
            name: f"-{name}"
            for name in (*(spec.name for spec in specs), *unsent)
            if name not in in_version
        },
        module=struct.__module__,
    )


struct_in_version: Final = cast(Callable[[type[Any], int, bool], type[Any]], cache(_make_struct))


def _python_type(wire_type: WireType | type[Any], version: int, strict: bool) -> Any:
    """Return the type for msgspec, with its limits. Every string, list and binary has a limit,
    except record sets, which are views of the frame."""
    found: Any
    match wire_type:
        case Integer():
            return Annotated[int, msgspec.Meta(ge=wire_type.low, le=wire_type.high)]
        case Float():
            return float
        case Boolean():
            return bool
        case Text():
            found = Annotated[str, msgspec.Meta(max_length=wire_type.max_bytes)]
        case Records():
            return memoryview | None
        case Data():
            found = Annotated[bytes, msgspec.Meta(max_length=wire_type.max_bytes)]
        case Array():
            items: Any = list.__class_getitem__(_python_type(wire_type.of, version, strict))
            found = Annotated[items, msgspec.Meta(max_length=wire_type.max_items)]
        case type():
            return struct_in_version(wire_type, version, strict)
    return found | None if wire_type.nullable else found


def _texts_of(struct: type[Any], version: int) -> TextLimits:
    """Return, for each text or array of texts, the maximum number of bytes; msgspec checks only the
    number of characters."""
    limits: list[tuple[str, int | TextLimits]] = []
    for spec in fields_of(struct, version, native=True):
        inner = spec.type.of if isinstance(spec.type, Array) else spec.type
        if isinstance(inner, Text):
            limits.append((spec.name, inner.max_bytes))
        elif isinstance(inner, type) and (texts := _texts_of(inner, version)).shortest < INT64.high:
            limits.append((spec.name, texts))
    return TextLimits(limits)
