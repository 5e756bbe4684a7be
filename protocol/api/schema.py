"""Declarations of requests and responses: each once, for every encoding and every version.

A message is a class under `@message` whose attributes are made by the helpers below:

    @message
    class FetchPartition:
        partition: int = int32(doc="...")
        fetch_offset: int = int64(doc="...")

Attributes stand in Kafka's order with Kafka's types. `since` and `until` bound the versions that
have a field; in other versions the field has its default. A `native` field exists only in the
native encoding, after Kafka's fields; encoders of Kafka's bytes skip it. A field with
`native_since` was added to the native encoding before Kafka's version `since`; in the versions
between, it is treated as a native field.

The declarations are data: `fields_of` lists the fields of one version, and encoders and decoders
are built from that list. A message object is a `msgspec.Struct`.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final, TypedDict, TypeVar, Unpack, cast, dataclass_transform

import msgspec
import msgspec.structs

from ...values import value_class
from ..limits import (
    MAX_DATA_BYTES,
    MAX_ERROR_TEXT_BYTES,
    MAX_REQUEST_VALUES,
    MAX_STRING_BYTES,
)
from .rights import Need

REQUIRED: Final = object()
"""Default of a field that must be sent."""

_FIELDS: Final = "__horolog_fields__"
"""The attribute of a message class with its fields."""
_UNSENT: Final = "__horolog_unsent__"
"""The attribute of a message class with the names of attributes that are no fields."""
_FLEXIBLE: Final = "__horolog_flexible__"
"""The attribute of a message class with the first version that Kafka writes in its compact
encoding."""
_PLAIN_HEAD: Final = "__horolog_plain_head__"
"""The attribute of a response class whose header has no tagged fields."""
_VALUES: Final = "__horolog_values__"
"""The attribute of a request class with the number of values that it may hold."""

T = TypeVar("T")


@value_class
class Integer:
    """A signed big-endian integer of 8, 16, 32 or 64 bits."""

    bits: int

    @property
    def low(self) -> int:
        return -(1 << (self.bits - 1))

    @property
    def high(self) -> int:
        return (1 << (self.bits - 1)) - 1

    def __str__(self) -> str:
        return f"int{self.bits}"


@value_class
class Float:
    """A 64-bit IEEE 754 number, big-endian; NaN and infinities are allowed."""

    def __str__(self) -> str:
        return "float64"


@value_class
class Boolean:
    """True or false; one byte in Kafka's encoding."""

    def __str__(self) -> str:
        return "boolean"


@value_class
class Text:
    """UTF-8 text of at most `max_bytes` bytes; Kafka's STRING or NULLABLE_STRING."""

    nullable: bool = False
    max_bytes: int = MAX_STRING_BYTES
    clipped: bool = False
    """Whether longer text is cut when it is written, instead of refused; for error texts, which may
    quote."""

    def __str__(self) -> str:
        return "nullable string" if self.nullable else "string"


@value_class
class Records:
    """A record set, byte for byte as stored; Kafka's RECORDS (bytes, or null).

    Its size is bounded by the frame. The schema does not check its content.
    """

    def __str__(self) -> str:
        return "records"


@value_class
class Data:
    """At most `max_bytes` bytes that only clients interpret; Kafka's BYTES."""

    nullable: bool = False
    max_bytes: int = MAX_DATA_BYTES

    def __str__(self) -> str:
        return "nullable bytes" if self.nullable else "bytes"


@value_class
class Array:
    """At most `max_items` items: of a message class, or of one of the types above."""

    of: "WireType | type[Any]"
    max_items: int
    nullable: bool = False

    def __str__(self) -> str:
        inner = self.of.__name__ if isinstance(self.of, type) else str(self.of)
        return f"nullable [{inner}]" if self.nullable else f"[{inner}]"


WireType = Integer | Float | Boolean | Text | Records | Data | Array

INT8: Final = Integer(8)
INT16: Final = Integer(16)
INT32: Final = Integer(32)
INT64: Final = Integer(64)


@value_class
class Field:
    """One declared field. `name` is filled in by `@message`."""

    type: WireType
    since: int = 0
    until: int | None = None
    native: bool = False
    native_since: int | None = None
    default: Any = REQUIRED
    doc: str = ""
    name: str = ""

    def in_version(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)

    def only_native_in(self, version: int) -> bool:
        """Whether in `version` the native encoding has the field, and Kafka's has not."""
        if self.native:
            return self.in_version(version)
        return self.native_since is not None and self.native_since <= version < self.since

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def default_value(self) -> Any:
        """Return the default; for an array, a new list."""
        return list(self.default) if isinstance(self.default, tuple) else self.default

    def declared(self, python_type: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
        """Return the msgspec declaration of the field, with values of `python_type`."""
        if self.required:
            return self.name, python_type
        if isinstance(self.default, tuple):
            make = self.default_value if self.default else list
            return self.name, python_type, msgspec.field(default_factory=make)
        return self.name, python_type, self.default

    def renamed(self, name: str, *, native: bool) -> "Field":
        """Return a copy of the field with this name."""
        kept = (self.type, self.since, self.until, native, self.native_since)
        return Field(*kept, self.default, self.doc, name)


class Unsent:
    """Declares an attribute that no encoding has."""


class Options(TypedDict, total=False):
    """Keyword arguments of every helper; see `Field`. The default of a list is given as a tuple."""

    since: int
    until: int | None
    native: bool
    native_since: int | None
    default: Any
    doc: str


def _declare(wire_type: WireType, options: Options) -> Any:
    spec = Field(wire_type, **options)
    if spec.required and (spec.since > 0 or spec.until is not None or spec.native):
        raise TypeError("a field that some version or encoding lacks needs a default")
    return spec


def int8(**options: Unpack[Options]) -> Any:
    """Declare an `int` field."""
    return _declare(INT8, options)


def int16(**options: Unpack[Options]) -> Any:
    """Declare an `int` field."""
    return _declare(INT16, options)


def int32(**options: Unpack[Options]) -> Any:
    """Declare an `int` field."""
    return _declare(INT32, options)


def int64(**options: Unpack[Options]) -> Any:
    """Declare an `int` field."""
    return _declare(INT64, options)


def float64(**options: Unpack[Options]) -> Any:
    """Declare a `float` field."""
    return _declare(Float(), options)


def boolean(**options: Unpack[Options]) -> Any:
    """Declare a `bool` field."""
    return _declare(Boolean(), options)


def string(**options: Unpack[Options]) -> Any:
    """Declare a `str` field."""
    return _declare(Text(), options)


def nullable_string(**options: Unpack[Options]) -> Any:
    """Declare a `str | None` field."""
    return _declare(Text(nullable=True), options)


def error_text(
    *, default: None, native: bool = False, since: int = 0, native_since: int | None = None
) -> Any:
    """Declare the `str | None` field with the text of an error."""
    wire_type = Text(nullable=True, max_bytes=MAX_ERROR_TEXT_BYTES, clipped=True)
    options: Options = {"native": native, "since": since, "native_since": native_since}
    return _declare(wire_type, {**options, "default": default, "doc": "What was wrong."})


def records(**options: Unpack[Options]) -> Any:
    """Declare a `bytes | None` field that holds a record set."""
    return _declare(Records(), options)


def data(*, max_bytes: int = MAX_DATA_BYTES, **options: Unpack[Options]) -> Any:
    """Declare a `bytes` field."""
    return _declare(Data(max_bytes=max_bytes), options)


def nullable_data(*, max_bytes: int = MAX_DATA_BYTES, **options: Unpack[Options]) -> Any:
    """Declare a `bytes | None` field."""
    return _declare(Data(nullable=True, max_bytes=max_bytes), options)


def unsent(*, default: None, doc: str) -> Any:
    """Declare an attribute that no encoding has, and that no decoder sets: what the broker keeps
    with the message."""
    return Unsent()


def array(
    of: WireType | type[Any],
    *,
    max_items: int,
    nullable: bool = False,
    **options: Unpack[Options],
) -> Any:
    """Declare a `list` field (`list | None` when nullable)."""
    return _declare(Array(of, max_items, nullable), options)


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        int8,
        int16,
        int32,
        int64,
        float64,
        boolean,
        string,
        nullable_string,
        error_text,
        records,
        data,
        nullable_data,
        array,
        unsent,
    ),
)
def message(cls: type[T]) -> type[T]:
    """Turn `cls` into a struct; every attribute must be a declared field.

    Raises TypeError at import when a declaration breaks the rules of this module.
    """
    specs = []
    attributes: list[str] = []
    for name in cls.__annotations__:
        spec = vars(cls).get(name)
        if isinstance(spec, Unsent):
            attributes.append(name)
            continue
        if not isinstance(spec, Field):
            raise TypeError(f"{cls.__name__}.{name} is not declared by a helper")
        specs.append(spec.renamed(name, native=spec.native))
        if len(specs) > 1 and specs[-2].native and not spec.native:
            raise TypeError(f"{cls.__name__}.{name} stands after a native field")
    made = msgspec.defstruct(
        cls.__name__,
        [*(spec.declared(Any) for spec in specs), *((name, Any, None) for name in attributes)],
        kw_only=True,
        eq=False,
        gc=False,  # messages never form reference cycles
        module=cls.__module__,
        namespace={
            "__doc__": cls.__doc__,
            "__eq__": _equal,
            _FIELDS: tuple(specs),
            _UNSENT: tuple(attributes),
        },
    )
    return cast(type[T], made)


def flexible(struct: type[T]) -> type[T]:
    """Mark a request or response to be written in Kafka's compact encoding ("flexible versions",
    KIP-482) in all its versions, with its header and inner messages. The native encoding is not
    affected."""
    return flexible_since(0)(struct)


def flexible_since(version: int) -> Callable[[type[T]], type[T]]:
    """Like `flexible`, for this version and later ones."""

    def mark(struct: type[T]) -> type[T]:
        setattr(struct, _FLEXIBLE, version)
        return struct

    return mark


def is_flexible(struct: type[Any], version: int) -> bool:
    """Whether a request or response has Kafka's compact encoding in this version."""
    since: int | None = getattr(struct, _FLEXIBLE, None)
    return since is not None and version >= since


def plain_head(struct: type[T]) -> type[T]:
    """Mark a response whose header has no tagged fields even in Kafka's compact encoding: clients
    read it before they know the broker's versions."""
    setattr(struct, _PLAIN_HEAD, True)
    return struct


def has_plain_head(struct: type[Any]) -> bool:
    """Whether the head of a response has no tagged fields in any version."""
    return getattr(struct, _PLAIN_HEAD, False)


def holds_values(count: int) -> Callable[[type[T]], type[T]]:
    """Set the number of values that a request may hold, if it needs more than other requests."""

    def mark(struct: type[T]) -> type[T]:
        setattr(struct, _VALUES, count)
        return struct

    return mark


def most_values(struct: type[Any]) -> int:
    """Return how many values a request may hold."""
    found: int = getattr(struct, _VALUES, MAX_REQUEST_VALUES)
    return found


def _equal(this: Any, other: Any) -> Any:
    """Compare messages of one declaration by their fields, whatever version they were decoded
    from."""
    if getattr(type(other), _FIELDS, None) is not getattr(type(this), _FIELDS):
        return NotImplemented
    return all(getattr(this, spec.name) == getattr(other, spec.name) for spec in all_fields(this))


def replaced(message: T, **changes: Any) -> T:
    """Return a copy of a message with other values in some fields."""
    copy: Any = msgspec.structs.replace
    return cast(T, copy(message, **changes))


def unsent_of(struct: object) -> Sequence[str]:
    """The names of attributes of `struct` that are no fields."""
    names: Sequence[str] = getattr(struct, _UNSENT)
    return names


def all_fields(struct: object) -> Sequence[Field]:
    """Return every declared field of `struct`, in order."""
    fields: Sequence[Field] = getattr(struct, _FIELDS)
    return fields


def fields_of(struct: type[Any], version: int, *, native: bool) -> list[Field]:
    """Return the fields that `version` of `struct` has, in order: Kafka's, then the native ones if
    `native`.

    `native` of a returned field says whether it is native in this version.
    """
    specs = all_fields(struct)
    found = [spec for spec in specs if spec.in_version(version) and not spec.native]
    if native:
        only_native = (spec for spec in specs if spec.only_native_in(version))
        found += [spec.renamed(spec.name, native=True) for spec in only_native]
    return found


def has_record_sets(wire_type: WireType | type[Any], version: int, *, native: bool) -> bool:
    """Whether a value of the type may contain record sets."""
    match wire_type:
        case Array():
            return has_record_sets(wire_type.of, version, native=native)
        case type():
            specs = fields_of(wire_type, version, native=native)
            return any(has_record_sets(spec.type, version, native=native) for spec in specs)
    return isinstance(wire_type, Records)


def structs_of(struct: type[Any]) -> Sequence[type[Any]]:
    """Return `struct` and every message class inside it, outer ones first."""
    found = [struct]
    for spec in all_fields(struct):
        if isinstance(spec.type, Array) and isinstance(spec.type.of, type):
            found += [inner for inner in structs_of(spec.type.of) if inner not in found]
    return found


class ServedBy(StrEnum):
    """Which brokers of a cluster serve a request. A single broker serves every request."""

    LEADER = "the leader"
    LEADER_OR_FOLLOWER = "the leader, or a follower (`allow_follower`)"
    COORDINATOR = "the coordinator"
    """The leader, as the coordinator of consumer groups."""
    ANY_BROKER = "any broker"


@value_class
class Api:
    """One request of the protocol: its key, its versions, its two messages, and how brokers and
    clients treat it.

    Version numbers are the same in both encodings; Kafka's encoding often has more versions.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    request: type[Any]
    response: type[Any]
    doc: str
    rights: tuple[Need, ...]
    """Rights that the client needs, each where it applies (`authorization=on`)."""
    served_by: ServedBy = ServedBy.LEADER
    repeatable: bool = True
    """Whether a client may send the request again after its connection broke, which leaves open
    whether the broker carried it out."""
    metered: bool = True
    """Whether the request counts against the quotas of its client."""
    before_login: bool = False
    """Whether the broker answers the request on a connection without a login."""
    native: bool = False
    """Whether Kafka has no such request."""
    native_max_version: int | None = None
    """The last version in the native encoding: `None` for `max_version`, -1 when it has none."""
    offered_max_version: int | None = None
    """The last version that api-versions offers to Kafka's clients; `None` for `max_version`. The
    broker serves later versions too."""
    offered_by_several: int | None = None
    """The last version offered by a cluster member; `None` for the same as
    `offered_max_version`."""

    def versions(self, *, native: bool) -> range:
        """Return the versions of the request in an encoding; the range may be empty."""
        return range(self.min_version, self.last_version(native=native) + 1)

    def last_version(self, *, native: bool) -> int:
        """Return the newest of `versions`; below `min_version` if there are none."""
        if not native:
            return self.min_version - 1 if self.native else self.max_version
        return self.max_version if self.native_max_version is None else self.native_max_version

    def offered(self, *, native: bool, several: bool = False) -> range:
        """Return those of `versions` that api-versions offers; `several`: as a cluster member."""
        versions = self.versions(native=native)
        last = self.offered_by_several if several else None
        last = self.offered_max_version if last is None else last
        return versions if native or last is None else range(versions.start, last + 1)


def kind(api_key: int, version: int) -> int:
    """Combine an api key and a version, both of 0 to 255, into one number."""
    return api_key << 8 | version


def allow_follower(*, since: int) -> Any:
    """Declare the `bool` field that permits a follower to answer a request."""
    return boolean(
        native=True,
        since=since,
        default=False,
        doc="Whether a follower may answer, up to its own high watermark. Otherwise only the "
        "leader answers.",
    )


def seen_offset(*, since: int) -> Any:
    """Declare the `int` field with the largest high watermark that the client has seen."""
    return int64(
        native=True,
        since=since,
        default=-1,
        doc="The largest high watermark that the client has seen. A follower with a lower "
        "high watermark does not answer. -1: none.",
    )


def follower_heard_ms(*, since: int) -> Any:
    """Declare the `int` field that tells whether a follower answered, and how current it is."""
    return int64(
        native=True,
        since=since,
        default=-1,
        doc="-1 if the leader answered. If a follower answered: how long ago it last heard "
        "from the leader.",
    )


def current_leader_epoch(*, since: int) -> Any:
    """Declare the `int` field with the leader epoch that a client knows."""
    return int32(
        since=since,
        default=-1,
        doc="Leader epoch that the client knows. Refused if the leader has another epoch. -1 "
        "is not checked; a single broker checks none.",
    )
