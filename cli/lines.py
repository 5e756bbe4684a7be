"""Turns lines of standard input into messages to send. Reading does not block the event loop."""

import asyncio
import base64
import binascii
import json
import os
import threading
from typing import Any, Final

from ..protocol.records.layout import NO_TIMESTAMP
from ..protocol.records.messages.sets import NewRecord
from ..times import INT64_MAX, OtherUnit, TimeError, check_unit, parse_time
from ..values import value_class
from .errors import CommandFailed
from .options import refused

_READ_BYTES: Final = 64 * 1024
_CHUNKS_AHEAD: Final = 4
"""Chunks read ahead of sending; if the broker is slower than the input, reading waits."""

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""Limit of a line, which is held in memory until its end is read. No broker accepts a message of
this size."""


THREAD_NAME: Final = "stdin"

_INT32_MAX: Final = 2**31 - 1
_FIELDS: Final = frozenset({"value", "key", "timestamp_ms", "timestamp", "partition", "headers"})
_PRINTED_FIELDS: Final = frozenset({"topic", "offset", "timestamp_type", "append_time_ms"})
"""Fields that `consume --json` prints and `produce --json` ignores, so that one topic can be piped
into another."""


class StandardInput:
    """Reads lines from a file descriptor in a thread. The thread ends with the input, after
    `close`, or with the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._room = threading.Semaphore(_CHUNKS_AHEAD)
        self._begun: list[bytes] = []
        self._begun_bytes = 0
        self._ended = False
        self._closed = False
        # A daemon thread, because nothing can interrupt its read from a terminal.
        threading.Thread(target=self._read, name=THREAD_NAME, daemon=True).start()

    async def lines(self) -> list[bytes] | None:
        """Return the next lines, without their newlines; None after the last line, which may lack
        a newline.

        A cancelled call loses no lines. Raises CommandFailed if the input cannot be read or a line
        is too long.
        """
        if self._ended:
            return None
        chunk = await self._chunks.get()
        self._room.release()
        if isinstance(chunk, OSError):
            raise CommandFailed(f"standard input cannot be read: {chunk.strerror}")
        if not chunk:
            self._ended = True
            return [b"".join(self._begun)] if self._begun else None
        *whole, begun = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join((*self._begun, whole[0]))
            self._begun.clear()
            self._begun_bytes = 0
        if begun:
            self._begun.append(begun)
            self._begun_bytes += len(begun)
            if self._begun_bytes > MAX_LINE_BYTES:
                raise CommandFailed(
                    f"a line of standard input is longer than {MAX_LINE_BYTES} bytes"
                )
        return whole

    def stop(self) -> None:
        """End the input: `lines` returns what was read, then None."""
        self._chunks.put_nowait(b"")

    def close(self) -> None:
        """Begin no further read. The thread ends, unless a read blocks it."""
        self._closed = True
        self._room.release()

    def _read(self) -> None:
        chunk: bytes | OSError = b"\n"
        while chunk and not isinstance(chunk, OSError):
            self._room.acquire()
            if self._closed:
                return
            try:
                # sys.stdin is not used: the thread would hold its lock while the interpreter exits.
                chunk = os.read(self._descriptor, _READ_BYTES)
            except OSError as error:
                chunk = error
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the loop is closed: the command has ended


class BadLine(CommandFailed):
    """A line of input is not a message."""


@value_class
class Message:
    """A message to send. `partition` is None if the line names none."""

    record: NewRecord
    partition: int | None = None


def plain_message(line: bytes, now_ms: int) -> Message:
    """Make a message whose value is the line."""
    return Message(NewRecord(line, None, now_ms))


def keyed_message(line: bytes, number: int, separator: bytes, now_ms: int) -> Message:
    """Make a message of a line with key, separator and value; the first separator counts. Raises
    BadLine, which names line `number`."""
    key, found, value = line.partition(separator)
    if not found:
        raise BadLine(
            f"line {number} has no {separator.decode('utf-8', 'backslashreplace')!r} between key "
            "and value (--key-separator)"
        )
    return Message(NewRecord(value, key, now_ms))


def json_message(line: bytes, number: int, now_ms: int, any_unit: bool = False) -> Message:
    """Parse a line with an object `{"value", "key"?, "timestamp_ms"?, "timestamp"?, "partition"?,
    "headers"?}`.

    Headers are a list of `{"name", "value"}`. `timestamp` is RFC 3339. Without a time, the time is
    `now_ms`; null (or `timestamp_ms` -1) makes a message without a time. A number that looks like
    another unit than milliseconds is accepted only with `any_unit`. Raises BadLine, which names
    line `number`.
    """
    try:
        fields = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadLine(f"line {number} is not UTF-8: {error.reason}") from None
    except (ValueError, RecursionError) as error:
        raise BadLine(f"line {number} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadLine(f'line {number} is not an object such as {{"value": "text"}}')
    if "value" not in fields:
        raise BadLine(f'line {number} has no "value"')
    unknown = sorted(fields.keys() - _FIELDS - _PRINTED_FIELDS)
    if unknown:
        raise BadLine(f'line {number} has a field "{unknown[0]}": known are {_known()}')
    if "timestamp" not in fields:
        time_ms = _time_ms(fields.get("timestamp_ms", now_ms), number, any_unit)
    elif "timestamp_ms" in fields:
        raise BadLine(f"line {number} has both timestamp and timestamp_ms: leave one of them out")
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
        _whole(partition, "partition", number, 0, _INT32_MAX)
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
            raise BadLine(f"line {number}: {field} has half of a surrogate pair") from None
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise BadLine(f"line {number}: {field} is not valid base64") from None
    raise BadLine(f'line {number}: {field} must be a string, {{"base64": "..."}} or null')


def _headers(value: Any, number: int) -> tuple[tuple[str, bytes | None], ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadLine(f'line {number}: headers must be a list of {{"name": "...", "value": ...}}')
    found = []
    for one in value:
        if not isinstance(one, dict) or one.keys() != {"name", "value"}:
            raise BadLine(f'line {number}: a header is {{"name": "...", "value": ...}}')
        name = one["name"]
        if not isinstance(name, str):
            raise BadLine(f"line {number}: the name of a header must be a string")
        _content(name, "the name of a header", number)
        found.append((name, _content(one["value"], "the value of a header", number)))
    return tuple(found)


def _time_ms(value: Any, number: int, any_unit: bool) -> int:
    if value is None:
        return NO_TIMESTAMP
    found = _whole(value, "timestamp_ms", number, NO_TIMESTAMP, INT64_MAX)
    if found != NO_TIMESTAMP:
        try:
            check_unit(found, any_unit)
        except OtherUnit as error:
            raise BadLine(f"line {number}: timestamp_ms {refused(error)}") from None
    return found


def _written_time_ms(value: Any, number: int) -> int:
    if value is None:
        return NO_TIMESTAMP
    # The other ways to write a time depend on when the line is read.
    if not isinstance(value, str) or value[4:5] != "-":
        raise BadLine(
            f"line {number}: timestamp must be RFC 3339, such as 2016-11-14T17:24:32Z, not "
            f"{json.dumps(value)[:100]}; a number goes into timestamp_ms"
        )
    try:
        return parse_time(value, 0)
    except TimeError as error:
        raise BadLine(f"line {number}: timestamp {error}") from None


def _whole(value: Any, field: str, number: int, minimum: int, maximum: int) -> int:
    if type(value) is not int or not minimum <= value <= maximum:
        raise BadLine(
            f"line {number}: {field} must be a whole number from {minimum} to {maximum}, "
            f"not {json.dumps(value)[:100]}"
        )
    return value
