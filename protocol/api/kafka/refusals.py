"""Responses that say of everything a request named that it was refused.

Kafka's encoding has no error of a whole response. So the code stands where its clients look for
it: in the response itself, or beside each topic, partition or group that the request named. Which
item of the response answers which of the request is seen from the declarations: both stand in the
first array whose items have an error code, and in that of the request's that comes first.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final, cast

import msgspec

from ...errors import CodedError
from ..log.fetch import FetchResponse
from ..schema import Array, Boolean, Field, Float, Integer, Text, WireType, all_fields
from ..security.client_quotas import QuotaEntityPart
from ..security.scram_credentials import AlterUserScramCredentialsRequest

_CODE: Final = "error_code"
_MESSAGE: Final = "error_message"

Named = Any
"""What a request names: a message object, or a number or a text."""


def refusal(struct: type[Any], request: Any, code: int, message: str) -> Any:
    """The response that refuses `request`; `None` when no place in it could say so.

    `request` is `None` when it is not known what it named.
    """
    if struct is FetchResponse and request is None:
        return FetchResponse(error_code=code, topics=[])
    if _has(struct, _CODE) and struct is not FetchResponse:
        return _item(struct, request, code, message)
    array = answering_array(struct)
    if array is None or request is None:
        return None
    response = _item(struct, request, code, message)
    return response if getattr(response, array.name) else None


def named_field(struct: type[Any]) -> str:
    """The field of a request with what it names: its first array."""
    return next(spec.name for spec in all_fields(struct) if isinstance(spec.type, Array))


def refused_each(
    struct: type[Any], refused: Iterable[tuple[Named, CodedError]]
) -> tuple[str, list[Any]]:
    """The field of a response whose items have the errors of what a request named, and the items
    that refuse these."""
    array = answering_array(struct)
    assert array is not None
    inner = cast(type[Any], array.type.of)  # type: ignore[union-attr]
    return array.name, [_item(inner, named, error.code, error.message) for named, error in refused]


def _item(struct: type[Any], named: Named, code: int, message: str) -> Any:
    """The message of `struct` that answers `named`."""
    values: dict[str, Any] = {}
    in_all = False  # whether the code has a place here in every version
    for spec in all_fields(struct):
        if spec.name == _CODE:
            if struct is FetchResponse:
                continue  # It is about sessions: no client asks another broker because of it.
            values[_CODE] = code
            in_all = spec.since == 0
        elif spec.name == _MESSAGE:
            values[_MESSAGE] = message
        elif spec.required:
            values[spec.name] = _same(spec, named)
    array = answering_array(struct)
    if array is not None and not in_all:
        inner = cast(type[Any], array.type.of)  # type: ignore[union-attr]
        values[array.name] = [_item(inner, each, code, message) for each in _named_in(named)]
    return struct(**values)


def _same(spec: Field, named: Named) -> Any:
    """The value that the answer to `named` has in a field that has to be there."""
    found = getattr(named, spec.name, None)
    if found is None and isinstance(named, int | str):
        found = named
    if found is None and spec.name == "user":
        found = getattr(named, "name", None)
    if found is None and spec.name == "group_id" and hasattr(named, "group"):
        found = named.group
    kinds: dict[type[Any], type[Any]] = {Integer: int, Boolean: bool, Text: str}
    if isinstance(spec.type, Array) and spec.type.of is QuotaEntityPart:
        return found or []
    kind = kinds.get(type(spec.type))
    if kind is not None and isinstance(found, kind):
        return found
    return _blank(spec.type)


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
    """The items of the first array of a message; of both, where users are changed, each once."""
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


answering_array: Final = cast(Callable[[type[Any]], Field | None], cache(_find_array_of_codes))
"""The array of a response whose items answer what a request names; `None` where it has none."""
