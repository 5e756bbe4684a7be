"""Decoders of the native encoding: bytes to a message object, by msgspec.

A message class in a version is a struct that derives from it: with the types and limits of its
fields, which are checked while the bytes are read. Fields that the version does not have keep their
defaults, because no key is called like them. What is wrong raises one of `WRONG`, which do not say
what it is in the protocol's words; `faults` does.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec.msgpack import Decoder

from ..framing import Frame
from ..schema import (
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
)

WRONG: Final[tuple[type[Exception], ...]] = (
    msgspec.DecodeError,
    RecursionError,
    UnicodeDecodeError,
    ValueError,
)
"""What a decoder raises."""

_MAX_CHARACTER_BYTES: Final = 4

Decode = Callable[[Frame], Any]


def _make_decoder(struct: type[Any], version: int, strict: bool) -> Decode:
    decode: Decode = Decoder(_in_version(struct, version, strict)).decode
    texts = _texts_of(struct, version)
    shortest = _shortest_limit(texts)

    def checked(body: Frame) -> Any:
        message = decode(body)
        if len(body) > shortest:
            _check_texts(message, texts)
        return message

    return checked


# The casts are there because mypy does not take a class for something hashable.
decoder: Final = cast(Callable[[type[Any], int, bool], Decode], cache(_make_decoder))
"""The decoder of a message class in a version. Strict: a key that the version does not have is
refused; otherwise it is skipped."""


def request_decoder(
    struct: type[Any], version: int, around: type[Any]
) -> tuple[Decode, int, Callable[[Any], None]]:
    """The strict decoder of whole requests: of structs like `around`, whose body is a message of
    the class in the version.

    With it comes what raises `ValueError` for a body in which a text has too many bytes, and how
    long a frame has to be at least for that.
    """
    whole = msgspec.defstruct(
        around.__name__,
        [("body", _in_version(struct, version, True))],
        bases=(around,),
        gc=False,
    )
    decode: Decode = Decoder(whole).decode
    texts = _texts_of(struct, version)
    return decode, _shortest_limit(texts) + 1, partial(_check_texts, texts=texts)


def _struct_in_version(struct: type[Any], version: int, strict: bool) -> type[Any]:
    in_version = {spec.name for spec in fields_of(struct, version, native=True)}
    specs = all_fields(struct)
    return msgspec.defstruct(
        struct.__name__,
        [spec.declared(_python_type(spec.type, version, strict)) for spec in specs],
        bases=(struct,),
        kw_only=True,
        gc=False,
        forbid_unknown_fields=strict,
        # A key cannot be met under a name that no declaration has.
        rename={spec.name: f"-{spec.name}" for spec in specs if spec.name not in in_version},
        module=struct.__module__,
    )


_in_version: Final = cast(Callable[[type[Any], int, bool], type[Any]], cache(_struct_in_version))


def _python_type(wire_type: WireType | type[Any], version: int, strict: bool) -> Any:
    """What msgspec is to read, with its limits. Every string, list and binary has one, but for
    record sets, which are views of the frame."""
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
            return _in_version(wire_type, version, strict)
    return found | None if wire_type.nullable else found


Texts = Mapping[str, "int | Texts"]
"""The limits of texts by field; of an array of messages those of its items. An array of texts has
the limit itself."""


def _texts_of(struct: type[Any], version: int) -> Texts:
    found: dict[str, int | Texts] = {}
    for spec in fields_of(struct, version, native=True):
        inner = spec.type.of if isinstance(spec.type, Array) else spec.type
        if isinstance(inner, Text):
            found[spec.name] = inner.max_bytes
        elif isinstance(inner, type) and (texts := _texts_of(inner, version)):
            found[spec.name] = texts
    return found


def _shortest_limit(texts: Texts) -> int:
    """A body that is no longer than this holds no text that is too long."""
    limits = (_shortest_limit(one) if isinstance(one, Mapping) else one for one in texts.values())
    return min(limits, default=2**63)


def _check_texts(message: Any, texts: Texts) -> None:
    """`ValueError` for a text of too many bytes. Its characters have been counted already."""
    for name, limit in texts.items():
        value = getattr(message, name)
        # To tell a number is cheaper than to tell a mapping.
        if isinstance(limit, int):
            for text in (value,) if isinstance(value, str) else value or ():
                if len(text) * _MAX_CHARACTER_BYTES > limit < len(text.encode()):
                    raise ValueError(f"{name} has more than {limit} bytes")
        else:
            for item in value or ():
                _check_texts(item, limit)
