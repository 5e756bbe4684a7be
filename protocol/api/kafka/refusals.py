"""Responses that refuse everything that a request named.

Kafka's encoding has no error for a whole response. So the error code goes where clients look for
it: into the response itself, or beside each topic, partition or group that the request named. Which
item of the response answers which item of the request follows from the declarations: the response's
first array whose items have an error code corresponds to the first array of the request.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, cast

import msgspec

from ....values import value_class
from ...errors import CodedError
from ..log.fetch import FetchResponse
from ..pieces import Pieces, finish
from ..schema import Array, Boolean, Field, Float, Integer, Text, WireType, all_fields
from ..security.client_quotas import QuotaEntityPart
from ..security.scram_credentials import AlterUserScramCredentialsRequest

_CODE: Final = "error_code"
_MESSAGE: Final = "error_message"
_PIECE_ITEMS: Final = 200

Named = Any
"""An item that a request names: a message object, a number or a text."""


def refusal(struct: type[Any], request: Any, code: int, message: str) -> Any:
    """Return the response that refuses `request`; `None` if it has no place for an error code.

    `request` is `None` if it could not be decoded, so that its items are unknown.
    """
    return finish(refusal_in_pieces(struct, request, code, message))


def refusal_in_pieces(struct: type[Any], request: Any, code: int, message: str) -> Pieces[Any]:
    """Like `refusal`, in pieces."""
    if struct is FetchResponse and request is None:
        return FetchResponse(error_code=code, topics=[])
    if _has(struct, _CODE) and struct is not FetchResponse:
        return (yield from _item(struct, request, code, message))
    array = answering_array(struct)
    if array is None or request is None:
        return None
    response = yield from _item(struct, request, code, message)
    return response if getattr(response, array.name) else None


def named_field(struct: type[Any]) -> str:
    """Return the name of the request's field with the items that it names: its first array."""
    return next(spec.name for spec in all_fields(struct) if isinstance(spec.type, Array))


def refused_each(
    struct: type[Any], refused: Iterable[tuple[Named, CodedError]]
) -> Pieces[tuple[str, list[Any]]]:
    """Return the response's field that answers the items of a request, and for each refused item
    its answer with the error."""
    array = answering_array(struct)
    assert array is not None
    inner = cast(type[Any], array.type.of)  # type: ignore[union-attr]
    items = []
    for named, error in refused:
        items.append((yield from _item(inner, named, error.code, error.message)))
        if len(items) % _PIECE_ITEMS == 0:
            yield
    return array.name, items


def _item(struct: type[Any], named: Named, code: int, message: str) -> Pieces[Any]:
    """Return the message of class `struct` that answers `named`."""
    shape = _shape_of(struct)
    values: dict[str, Any] = {name: same(named) for name, same in shape.copied}
    if shape.has_code:
        values[_CODE] = code
    if shape.has_message:
        values[_MESSAGE] = message
    if shape.items is not None:
        name, inner = shape.items
        items: list[Any] = []
        values[name] = items
        for each in _named_in(named):
            items.append((yield from _item(inner, each, code, message)))
            if len(items) % _PIECE_ITEMS == 0:
                yield
    return struct(**values)


@value_class
class _Shape:
    """How a message class answers a named item."""

    has_code: bool
    has_message: bool
    copied: Sequence[tuple[str, Callable[[Named], Any]]]
    """The other required fields, each with a function that takes its value from the named item."""
    items: tuple[str, type[Any]] | None
    """The field with the answers to the items inside the named item, if the message itself has no
    error code in some version."""


def _make_shape(struct: type[Any]) -> _Shape:
    codes = [spec for spec in all_fields(struct) if spec.name == _CODE]
    has_code = bool(codes) and struct is not FetchResponse  # A fetch session's, there.
    in_all = has_code and codes[0].since == 0
    array = None if in_all else answering_array(struct)
    return _Shape(
        has_code=has_code,
        has_message=_has(struct, _MESSAGE),
        copied=[
            (spec.name, _same(spec))
            for spec in all_fields(struct)
            if spec.required
            and spec.name not in (_CODE, _MESSAGE)
            and (array is None or spec.name != array.name)
        ],
        items=None if array is None else (array.name, cast(Array, array.type).of),  # type: ignore[arg-type]
    )


def _same(spec: Field) -> Callable[[Named], Any]:
    """Return a function that takes a required field of the answer from the named item."""
    kinds: dict[type[Any], type[Any]] = {Integer: int, Boolean: bool, Text: str}
    kind = kinds.get(type(spec.type))
    entity = isinstance(spec.type, Array) and spec.type.of is QuotaEntityPart

    def same(named: Named) -> Any:
        found = getattr(named, spec.name, None)
        if found is None and isinstance(named, int | str):
            found = named
        if found is None and spec.name == "user":
            found = getattr(named, "name", None)
        if found is None and spec.name == "group_id" and hasattr(named, "group"):
            found = named.group
        if entity:
            return found or []
        return found if kind is not None and isinstance(found, kind) else _blank(spec.type)

    return same


def _blank(wire_type: WireType) -> Any:
    match wire_type:
        case Integer():
            return 0
        case Float():
            return 0.0
        case Boolean():
            return False
        case Array():
            return []
        case Text(nullable=False):
            return ""
        case _:
            return None


def _named_in(named: Named) -> list[Named]:
    """Return the items of the first array of a message; for changes of users, those of both arrays,
    each user once."""
    if not isinstance(named, msgspec.Struct):
        return []
    if isinstance(named, AlterUserScramCredentialsRequest):
        changes: list[Any] = [*named.deletions, *named.upsertions]
        return list({change.name: change for change in changes}.values())
    for spec in all_fields(type(named)):
        if isinstance(spec.type, Array):
            return getattr(named, spec.name) or []
    return []


def _has(struct: type[Any], name: str) -> bool:
    return any(spec.name == name for spec in all_fields(struct))


def _find_array_of_codes(struct: type[Any]) -> Field | None:
    for spec in all_fields(struct):
        if isinstance(spec.type, Array) and isinstance(spec.type.of, type):
            inner = spec.type.of
            if _has(inner, _CODE) or answering_array(inner) is not None:
                return spec
    return None


_shape_of: Final = cast(Callable[[type[Any]], _Shape], cache(_make_shape))
answering_array: Final = cast(Callable[[type[Any]], Field | None], cache(_find_array_of_codes))
"""The array of a response whose items answer the items of the request; `None` if it has none."""
