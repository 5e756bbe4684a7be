"""Messages as lines of JSON: `{"value", "key"?, "timestamp_ms"?, "timestamp"?, "partition"?,
"headers"?}`, as `horolog produce --json` and recordings have them."""

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, Final

from ..protocol.errors import HorologError
from ..protocol.records.layout import NO_TIMESTAMP
from ..protocol.records.messages.sets import NewRecord
from ..times import INT64_MAX, OtherUnit, TimeError, check_unit, parse_time
from ..values import value_class

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""Limit of a line, which is held in memory until its end is read. No broker accepts a message of
this size."""

PARTITION_MAX: Final = 2**31 - 1

_FIELDS: Final = frozenset({"value", "key", "timestamp_ms", "timestamp", "partition", "headers"})
_PRINTED_FIELDS: Final = frozenset({"topic", "offset", "timestamp_type", "append_time_ms"})
"""Fields that a printed message has and that are ignored, so that one topic can be piped
into another."""


class InvalidLine(HorologError, ValueError):
    """A line is not a message. The text says which line, and what is wrong."""


@value_class
class Message:
    """A message to send. `partition` is None if the line names none."""

    record: NewRecord
    partition: int | None = None


def parse_message(
    line: bytes,
    number: int,
    now_ms: int,
    any_unit: bool = False,
    advice: Callable[[TimeError], str] = str,
) -> Message:
    """Parse a line with an object `{"value", "key"?, "timestamp_ms"?, "timestamp"?, "partition"?,
    "headers"?}`.

    Headers are a list of `{"name", "value"}`. `timestamp` is RFC 3339. Without a time, the time is
    `now_ms`; null (or `timestamp_ms` -1) makes a message without a time. A number that looks like
    another unit than milliseconds is accepted only with `any_unit`; `advice` words its refusal.
    Raises `InvalidLine`, which names line `number`.
    """
    try:
        fields = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InvalidLine(f"line {number} is not UTF-8: {error.reason}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidLine(f"line {number} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidLine(f'line {number} is not an object such as {{"value": "text"}}')
    if "value" not in fields:
        raise InvalidLine(f'line {number} has no "value"')
    unknown = sorted(fields.keys() - _FIELDS - _PRINTED_FIELDS)
    if unknown:
        raise InvalidLine(f'line {number} has a field "{unknown[0]}": known are {_known()}')
    if "timestamp" not in fields:
        time_ms = _time_ms(fields.get("timestamp_ms", now_ms), number, any_unit, advice)
    elif "timestamp_ms" in fields:
        raise InvalidLine(
            f"line {number} has both timestamp and timestamp_ms: leave one of them out"
        )
    else:
        time_ms = _written_time_ms(fields["timestamp"], number)
    record = NewRecord(
        _content(fields["value"], "value", number),
        _content(fields.get("key"), "key", number),
        time_ms,
        _headers(fields.get("headers"), number),
    )
    partition = fields.get("partition")
    if partition is not None:
        _whole(partition, "partition", number, 0, PARTITION_MAX)
    return Message(record, partition)


def _known() -> str:
    return ", ".join(sorted(_FIELDS))


def _content(value: Any, field: str, number: int) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidLine(f"line {number}: {field} has half of a surrogate pair") from None
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise InvalidLine(f"line {number}: {field} is not valid base64") from None
    raise InvalidLine(f'line {number}: {field} must be a string, {{"base64": "..."}} or null')


def _headers(value: Any, number: int) -> tuple[tuple[str, bytes | None], ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InvalidLine(
            f'line {number}: headers must be a list of {{"name": "...", "value": ...}}'
        )
    found = []
    for one in value:
        if not isinstance(one, dict) or one.keys() != {"name", "value"}:
            raise InvalidLine(f'line {number}: a header is {{"name": "...", "value": ...}}')
        name = one["name"]
        if not isinstance(name, str):
            raise InvalidLine(f"line {number}: the name of a header must be a string")
        _content(name, "the name of a header", number)
        found.append((name, _content(one["value"], "the value of a header", number)))
    return tuple(found)


def _time_ms(value: Any, number: int, any_unit: bool, advice: Callable[[TimeError], str]) -> int:
    if value is None:
        return NO_TIMESTAMP
    found = _whole(value, "timestamp_ms", number, NO_TIMESTAMP, INT64_MAX)
    if found != NO_TIMESTAMP:
        try:
            check_unit(found, any_unit)
        except OtherUnit as error:
            raise InvalidLine(f"line {number}: timestamp_ms {advice(error)}") from None
    return found


def _written_time_ms(value: Any, number: int) -> int:
    if value is None:
        return NO_TIMESTAMP
    # The other ways to write a time depend on when the line is read.
    if not isinstance(value, str) or value[4:5] != "-":
        raise InvalidLine(
            f"line {number}: timestamp must be RFC 3339, such as 2016-11-14T17:24:32Z, not "
            f"{json.dumps(value)[:100]}; a number goes into timestamp_ms"
        )
    try:
        return parse_time(value, 0)
    except TimeError as error:
        raise InvalidLine(f"line {number}: timestamp {error}") from None


def _whole(value: Any, field: str, number: int, minimum: int, maximum: int) -> int:
    if type(value) is not int or not minimum <= value <= maximum:
        raise InvalidLine(
            f"line {number}: {field} must be a whole number from {minimum} to {maximum}, "
            f"not {json.dumps(value)[:100]}"
        )
    return value
