"""Writes `docs/protocol.md` from the declarations: `python -m horolog.protocol.api.reference`.

`EXAMPLES` are the requests and responses that the page shows byte by byte: one line of hexadecimal
for each value, with its meaning.
"""

import sys
from collections.abc import Iterator
from typing import Any, Final

import msgpack

from ...values import value_class
from .. import limits
from ..limits import LENGTH_BYTES
from ..records.messages.sets import NewRecord, build_set
from .log.fetch import (
    FETCH,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResult,
)
from .log.produce import (
    PRODUCE,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)
from .native.frames import encode_request, encode_response
from .registry import APIS
from .schema import Api, Array, Field, all_fields

_BYTES_PER_LINE: Final = 16
_INDENT: Final = "  "

_INTRODUCTION = f"""\
# The native protocol

Generated from the declarations in `protocol/api/` by `make docs`.

To write a client, begin with the [worked examples](#worked-examples): the bytes of whole frames. To
try it, start a broker with `make run`. `horolog topic list` then shows, with [metadata](#metadata),
the topics that your client should find.

A client connects over TCP (port 7070 by default) and sends requests. The broker answers the
requests of one connection in their order. Any number of requests may be in flight. The client
chooses a correlation id for each request, and the response has the same id. A fetch that waits for
messages holds up the requests behind it, so a client should wait on a connection of its own.

## Frames

Both directions carry frames. A frame is a length (4 bytes, big-endian, signed, greater than 0), and
then as many bytes, which are one [msgpack](https://msgpack.org) array.

| frame | array |
|---|---|
| request | `[api, version, correlation_id, client_id, body]` |
| response | `[correlation_id, error_code, body]` |

`api`, `version` and `error_code` are integers, `correlation_id` is an int32, `client_id` is nil or
a string of at most {limits.MAX_CLIENT_ID_BYTES} bytes. `body` is a map with string keys: the fields
below.

When `error_code` is not 0, the request failed as a whole and the body is
`{{"error_message": text}}`. Topics and partitions in a response have error codes of their own. All
codes are in [errors.md](errors.md). An unknown request or version gets error 35.

A client begins with `api-versions` and uses the highest version of each request that both sides
have.

## Values

| type | msgpack | range |
|---|---|---|
| int8, int16, int32, int64 | integer (never a float) | signed, of that many bits |
| boolean | true, false | |
| string | str, UTF-8 | at most {limits.MAX_STRING_BYTES} bytes |
| records | bin, or nil | message sets, byte for byte in Kafka's message format v0, v1 or v2 |
| [type] | array | the number of items is limited for each field |
| nullable | the type, or nil | |

Times are milliseconds since the epoch; -1 means none.

In a request, a field with a default in the tables may be left out; every other field must be there.
If a request has a key that its version does not have, it is refused with error 42, and the text
names the place: `topics[0].partitions[2].records`. In a response, a client skips keys that it does
not know. Fields marked *native* are not in Kafka's protocol. They are left out of a message when
they have their default value.

A request holds at most {limits.MAX_REQUEST_VALUES:,} msgpack values and a response at most
{limits.MAX_RESPONSE_VALUES:,}, nested at most {limits.MAX_DEPTH} deep. The setting
`socket.request.max.bytes` limits the size of a request. The broker closes the connection when a
length is out of range, when a frame is not a request, and when a produce with `acks` 0 fails.
"""

_REQUESTS = """
## Requests

All requests, with their versions in both encodings. In a cluster the brokers of the column *served
by* answer; a single broker answers every request. A client does not repeat a *not repeated* request
whose connection broke: the broker may have carried it out. [Rights](security/rights.md) says what a
client needs for each.

| api | request | native | Kafka | served by | |
|---:|---|---|---|---|---|
"""


@value_class
class Example:
    """One exchange of a request and a response."""

    title: str
    text: str
    api: Api
    version: int
    correlation_id: int
    request: Any
    response: Any


_TIMESTAMP_MS: Final = 1_479_144_272_509
_SET: Final = bytes(build_set([NewRecord(b"hello", None, _TIMESTAMP_MS)]))
_STORED: Final = bytes(build_set([NewRecord(b"hello", None, _TIMESTAMP_MS)], base_offset=41))

EXAMPLES: Final = (
    Example(
        title="Produce one message",
        text=f"The value `hello`, without a key, with the timestamp {_TIMESTAMP_MS}, goes to "
        "partition 0 of `clicks`. The broker gives it the offset 41. The record set is one "
        "message in format v1: offset (8 bytes), size (4), CRC-32 (4), magic 1, attributes 0, "
        "timestamp (8), key length -1 (4), value length 5 (4), value.",
        api=PRODUCE,
        version=2,
        correlation_id=1,
        request=ProduceRequest(
            acks=-1,
            topics=[
                ProduceTopic(
                    name="clicks", partitions=[ProducePartition(partition=0, records=_SET)]
                )
            ],
        ),
        response=ProduceResponse(
            topics=[
                ProduceTopicResult(
                    name="clicks",
                    partitions=[ProducePartitionResult(partition=0, base_offset=41)],
                )
            ]
        ),
    ),
    Example(
        title="Fetch it",
        text="Everything from offset 41 on, waiting up to half a second for the first byte. The "
        "message comes back as it was sent, except for its offset.",
        api=FETCH,
        version=3,
        correlation_id=2,
        request=FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 24,
            topics=[
                FetchTopic(name="clicks", partitions=[FetchPartition(partition=0, fetch_offset=41)])
            ],
        ),
        response=FetchResponse(
            topics=[
                FetchTopicResult(
                    name="clicks",
                    partitions=[
                        FetchPartitionResult(partition=0, high_watermark=42, records=_STORED)
                    ],
                )
            ]
        ),
    ),
)


def page() -> str:
    """Return the whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from _INTRODUCTION.splitlines()
    yield from _REQUESTS.splitlines()
    yield from (f"| {' | '.join(_cells(api))} |" for api in APIS.values())
    for api in APIS.values():
        if not api.versions(native=True):
            continue
        yield from ("", f"### {api.name}", "", f"Api {api.key}, {_versions(api, 'versions ')}.")
        yield from ("", api.doc, "", "Request:", "", *_table(api.request, api))
        yield from ("", "Response:", "", *_table(api.response, api))
    yield from ("", "## Worked examples", "", "The bytes of whole frames, in hexadecimal.")
    for example in EXAMPLES:
        head = (example.api, example.version, example.correlation_id)
        request = encode_request(*head, "docs", example.request)
        response = encode_response(head[2], head[0], head[1], example.response)
        yield from ("", f"### {example.title}", "", example.text)
        yield from ("", "Request:", "", "```", *hex_dump(request), "```")
        yield from ("", "Response:", "", "```", *hex_dump(response), "```")


def _cells(api: Api) -> Iterator[str]:
    """Yield the cells of a request's row."""
    yield str(api.key)
    yield f"[{api.name}](#{api.name})" if api.versions(native=True) else api.name
    for native in (True, False):
        yield _versions(api, native=native) if api.versions(native=native) else ""
    yield api.served_by
    yield ", ".join(_notes(api))


def _notes(api: Api) -> Iterator[str]:
    if not api.repeatable:
        yield "not repeated"
    if not api.metered:
        yield "no quota"
    if api.before_login:
        yield "before a login"


def _versions(api: Api, several: str = "", *, native: bool = True) -> str:
    last = api.last_version(native=native)
    if api.min_version == last:
        return f"version {last}" if several else f"{last}"
    return f"{several}{api.min_version} to {last}"


def _table(struct: type[Any], api: Api) -> list[str]:
    rows = list(_rows(struct, api, ""))
    if not rows:
        return ["An empty map."]
    return ["| field | type | default | versions | meaning |", "|---|---|---|---|---|", *rows]


def _rows(struct: type[Any], api: Api, prefix: str) -> Iterator[str]:
    last = api.last_version(native=True)
    for spec in all_fields(struct):
        if spec.since > last and not spec.only_native_in(last):
            continue
        inner = spec.type.of if isinstance(spec.type, Array) else None
        struct_inside = inner if isinstance(inner, type) else None
        kind = "[map]" if struct_inside else str(spec.type)
        if isinstance(spec.type, Array):
            kind += f" (at most {spec.type.max_items:,})"
        yield (
            f"| `{prefix}{spec.name}` | {kind} | {_default(spec)} | {_field_versions(spec, api)} "
            f"| {spec.doc} |"
        )
        if struct_inside:
            yield from _rows(struct_inside, api, f"{prefix}{spec.name}[].")


def _default(spec: Field) -> str:
    if spec.required:
        return ""
    named = {None: "nil", True: "true", False: "false", (): "[]", "": '""', b"": "no bytes"}
    if spec.default is None or isinstance(spec.default, bool | tuple | str | bytes):
        return named[spec.default]
    return str(spec.default)


def _field_versions(spec: Field, api: Api) -> str:
    words = []
    since = spec.since if spec.native_since is None else spec.native_since
    if since > api.min_version:
        words.append(f"from {since}")
    if spec.until is not None:
        words.append(f"to {spec.until}")
    if spec.native or spec.native_since is not None:
        words.append("*native*")
    return " ".join(words)


def hex_dump(frame: bytes) -> Iterator[str]:
    """Yield the lines of a whole frame, its length first, in two columns."""
    length = frame[:LENGTH_BYTES]
    yield from _columns(length, f"length: {int.from_bytes(length, 'big')}")
    payload = frame[LENGTH_BYTES:]
    unpacker = msgpack.Unpacker(max_buffer_size=len(payload))
    unpacker.feed(payload)
    yield from _value(unpacker, payload, 0, b"", "")


def _value(unpacker: Any, data: bytes, depth: int, key: bytes, name: str) -> Iterator[str]:
    """Yield the lines of one value. `key` is the bytes of its map key, which share its line."""
    start = unpacker.tell()
    first = data[start]
    label = _INDENT * depth + (f"{name}: " if name else "")
    if 0x90 <= first <= 0x9F or first in (0xDC, 0xDD):
        count = unpacker.read_array_header()
        yield from _columns(key + data[start : unpacker.tell()], f"{label}array of {count}")
        for _ in range(count):
            yield from _value(unpacker, data, depth + 1, b"", "")
    elif 0x80 <= first <= 0x8F or first in (0xDE, 0xDF):
        count = unpacker.read_map_header()
        yield from _columns(key + data[start : unpacker.tell()], f"{label}map of {count}")
        for _ in range(count):
            key_start = unpacker.tell()
            inner_name = unpacker.unpack()
            inner_key = data[key_start : unpacker.tell()]
            yield from _value(unpacker, data, depth + 1, inner_key, inner_name)
    else:
        text = _scalar(unpacker.unpack())
        yield from _columns(key + data[start : unpacker.tell()], label + text)


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return "nil" if value is None else str(value).lower()


def _columns(data: bytes, text: str) -> Iterator[str]:
    width = 3 * _BYTES_PER_LINE + 1
    for start in range(0, len(data), _BYTES_PER_LINE):
        part = data[start : start + _BYTES_PER_LINE].hex(" ")
        last = start + _BYTES_PER_LINE >= len(data)
        yield f"{part:{width}}{text}" if last else part


if __name__ == "__main__":
    sys.stdout.write(page())
