"""The largest requests of each kind: each names as many things as the limits of the protocol
allow."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from ...protocol.api.encodings import Encoding
from ...protocol.api.groups.join_group import JOIN_GROUP
from ...protocol.api.groups.offset_fetch import OFFSET_FETCH
from ...protocol.api.groups.sync_group import SYNC_GROUP
from ...protocol.api.log.count_by_time import COUNT_BY_TIME
from ...protocol.api.log.describe_log_dirs import DESCRIBE_LOG_DIRS
from ...protocol.api.log.describe_removals import DESCRIBE_REMOVALS, DescribeRemovalsRequest
from ...protocol.api.log.fetch import FETCH
from ...protocol.api.log.produce import PRODUCE
from ...protocol.api.registry import APIS
from ...protocol.api.schema import (
    Api,
    Array,
    Boolean,
    Data,
    Float,
    Integer,
    Records,
    Text,
    WireType,
    fields_of,
    replaced,
)
from ...protocol.api.security.acls import DELETE_ACLS
from ...protocol.api.security.client_quotas import DESCRIBE_CLIENT_QUOTAS
from ...protocol.api.security.scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from ...protocol.api.topics.describe_configs import DESCRIBE_CONFIGS
from ...protocol.api.topics.elect_leaders import ELECT_LEADERS, ElectLeadersRequest
from ...protocol.api.topics.metadata import METADATA
from ...testing.requests import produce_to
from ..brokers import MIB, batch, sets

GROUP: Final = "bench"
WIDE: Final = "wide"
"""A topic with many partitions."""
NARROW: Final = "narrow-{}"
"""Topics with one partition each."""
PRINCIPAL: Final = "User:u{}"

_HEAD_VALUES: Final = 6
"""Number of values in front of the body of a request."""

Namer = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the requests, and of the broker's state that they concern."""

    values: int
    """Number of values in one request."""
    frame_bytes: int
    partitions: int
    """Number of partitions of the topic `WIDE`."""
    topics: int
    """Number of the topics `NARROW`."""
    rules: int


@dataclass(frozen=True, slots=True)
class LargestRequest:
    """One request."""

    name: str
    api: Api
    version: int
    body: Any
    cut_bytes: int = 0
    """Number of bytes to cut off at the end of the request."""

    def frame(self, encoding: Encoding) -> bytes:
        """Return the request as bytes, with the length in front."""
        whole = encoding.encode_request(self.api, self.version, 1, "bench", self.body)
        size = len(whole) - 4 - self.cut_bytes
        return size.to_bytes(4, "big") + whole[4 : 4 + size]


def largest(encoding: Encoding, size: Size) -> Iterator[LargestRequest]:
    """Yield the largest requests of every kind in an encoding."""
    for api in APIS.values():
        versions = api.versions(native=encoding.NATIVE)
        if versions:
            yield from _largest_of(api, versions[-1], encoding, size)


def _largest_of(api: Api, version: int, encoding: Encoding, size: Size) -> Iterator[LargestRequest]:
    for name, shape in _SHAPES.items():
        body = shape(api, version, encoding, size)
        if body is None:
            continue
        yield LargestRequest(name, api, version, body)
        if name == "many things":
            yield LargestRequest("many things, cut off", api, version, body, cut_bytes=1)
    for name, special in _SPECIAL.get(api.key, {}).items():
        yield LargestRequest(name, api, version, special(size))


# Shapes that any request may have.


def _least(api: Api, version: int, encoding: Encoding, size: Size) -> Any:
    """Return a request with each field set and nothing repeated, for kinds without an array."""
    if _first_array(api.request, version, encoding) is not None:
        return None
    return _filled(api.request, version, encoding, {}, str)


def _many(
    namer: Namer, api: Api, version: int, encoding: Encoding, size: Size, more: int = 0
) -> Any:
    """Return a request with many items in the first array, each with one item in its own arrays."""
    array = _first_array(api.request, version, encoding)
    if array is None:
        return None
    name, spec = array
    count = _room(name, api, version, encoding, namer, size)
    return _filled(api.request, version, encoding, {name: min(count, spec.max_items) + more}, namer)


def _deep(api: Api, version: int, encoding: Encoding, size: Size) -> Any:
    """Return a request with one item in the first array, and many items in the array of that
    item."""
    array = _first_array(api.request, version, encoding)
    if array is None or not isinstance(array[1].of, type):
        return None
    inner = _first_array(array[1].of, version, encoding)
    if inner is None:
        return None
    name, spec = inner
    count = _room(name, api, version, encoding, _wide, size)
    return _filled(api.request, version, encoding, {name: min(count, spec.max_items)}, _wide)


def _wide(_: int) -> str:
    return WIDE


def _room(name: str, api: Api, version: int, encoding: Encoding, namer: Namer, size: Size) -> int:
    """Return how many items the arrays of this name may have."""
    one, two = (
        _count(_filled(api.request, version, encoding, {name: count}, namer), version, encoding)
        for count in (1, 2)
    )
    return (size.values - one - _HEAD_VALUES) // max(two - one, 1) + 1


def _long(api: Api, version: int, encoding: Encoding, size: Size) -> Any:
    """Return a request with texts and bytes of the largest allowed length, as many as fit in a
    frame."""
    array = _first_array(api.request, version, encoding)
    if array is None:
        return None
    longest = max(_lengths(array[1].of, version, encoding), default=0)
    if not longest:
        return None
    name, spec = array
    count = min(size.frame_bytes // longest, spec.max_items, size.values // 20)
    long_name = "x" * 32_000
    return _filled(
        api.request, version, encoding, {name: count}, lambda at: long_name, data_bytes=longest
    )


_SHAPES: Final[Mapping[str, Callable[[Api, int, Encoding, Size], Any]]] = {
    "the least": _least,
    "many things": partial(_many, lambda number: f"absent-{number}"),
    "one thing many times": partial(_many, lambda _: WIDE),
    "things that there are": partial(_many, NARROW.format),
    "windows of one thing": partial(_many, lambda number: f"{WIDE}..{1479132300000 + number}..1h"),
    "many parts of one thing": _deep,
    "too many things": partial(_many, str, more=1_000),
    "long texts": _long,
}


def _first_array(struct: type[Any], version: int, encoding: Encoding) -> tuple[str, Array] | None:
    for spec in fields_of(struct, version, native=encoding.NATIVE):
        if isinstance(spec.type, Array):
            return spec.name, spec.type
    return None


def _lengths(of: WireType | type[Any], version: int, encoding: Encoding) -> Iterator[int]:
    match of:
        case Data():
            yield of.max_bytes
        case Text():
            yield min(of.max_bytes, 32_000)
        case type():
            for spec in fields_of(of, version, native=encoding.NATIVE):
                yield from _lengths(spec.type, version, encoding)


def _filled(
    of: WireType | type[Any],
    version: int,
    encoding: Encoding,
    counts: Mapping[str, int],
    namer: Namer,
    *,
    field: str = "",
    number: int = 0,
    data_bytes: int = 1,
) -> Any:
    """Return a value of a type. Its arrays have one item, or the number in `counts` under their
    name."""
    again = partial(
        _filled,
        version=version,
        encoding=encoding,
        counts=counts,
        namer=namer,
        data_bytes=data_bytes,
    )
    match of:
        case Array():
            return [again(of.of, field=field, number=at) for at in range(counts.get(field, 1))]
        case type():
            specs = fields_of(of, version, native=encoding.NATIVE)
            return of(
                **{
                    spec.name: again(spec.type, field=spec.name, number=number)
                    for spec in specs
                    if not spec.native and spec.name not in _LEFT_OUT
                }
            )
        case Text():
            return _TEXTS.get(field, namer)(number)[: of.max_bytes]
        case Data():
            return bytes(min(data_bytes, of.max_bytes))
        case Records():
            return b""
        case Boolean():
            return field in _TRUE
        case Float():
            return 1.0
        case Integer():
            return number if field in _NUMBERED else _NUMBERS.get(field, 0)


_LEFT_OUT: Final = frozenset({"configuration_keys", "forgotten_topics", "transactional_id"})
_TRUE: Final = frozenset({"validate_only", "include_synonyms"})
_NUMBERED: Final = frozenset({"partition", "partitions"})
_NUMBERS: Final[Mapping[str, int]] = {
    "acks": 1,
    "count": 1_000_000,
    "generation_id": -1,
    "iterations": 4096,
    "max_bytes": 50 * MIB,
    "mechanism": 1,
    "num_partitions": 1,
    "operation": 3,
    "pattern_type": 3,
    "partition_max_bytes": MIB,
    "permission": 3,
    "permission_type": 3,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_type": 2,
    "session_epoch": -1,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "timeout_ms": 1_000,
    "timestamp": -1,
}
_TEXTS: Final[Mapping[str, Namer]] = {
    "assignments": lambda _: "",
    "committed_metadata": lambda _: "",
    "entity_type": lambda _: "user",
    "group_id": lambda _: GROUP,
    "host": lambda _: "*",
    "key": lambda _: "producer_byte_rate",
    "listing": lambda _: "",
    "member_id": lambda _: "",
    "principal": PRINCIPAL.format,
    "value": str,
}


def _count(value: Any, version: int, encoding: Encoding) -> int:
    """Return the number of values in a message, as its decoder counts them."""
    if isinstance(value, list):
        items = sum(_count(item, version, encoding) for item in value)
        return items + 1 if encoding.NATIVE else items
    if not isinstance(value, msgspec.Struct):
        return 1
    specs = fields_of(type(value), version, native=encoding.NATIVE)
    values = [getattr(value, spec.name) for spec in specs if not spec.native]
    if encoding.NATIVE:
        return 1 + len(values) + sum(_count(each, version, encoding) for each in values)
    arrays = [each for each in values if isinstance(each, list)]
    return 1 + len(values) + sum(_count(each, version, encoding) for each in arrays)


# What single kinds have.


def _produced_sets(size: Size, acks: int) -> Any:
    data, _ = batch(100, 1)
    return produce_to(WIDE, [(at, data) for at in range(size.partitions)], acks=acks)


def _produced_bytes(size: Size) -> Any:
    data, _ = sets(1024, min(900_000, size.frame_bytes // 8))
    count = size.frame_bytes // (len(data) + 100)
    return produce_to(WIDE, [(at, data) for at in range(count)])


def _produced_set(size: Size) -> Any:
    data, _ = sets(1024, size.frame_bytes * 9 // 10)
    return produce_to(NARROW.format(0), [(0, data)])


def _broken_sets(size: Size) -> Any:
    data, _ = sets(100, min(900_000, size.frame_bytes // 8))
    broken = data[:-1] + bytes([data[-1] ^ 1])
    count = min(8 * MIB, size.frame_bytes // 2) // (len(data) + 100)
    return produce_to(WIDE, [(at, broken) for at in range(count)])


def _fetched(size: Size, wait_ms: int) -> Any:
    api, version = FETCH, FETCH.last_version(native=True)
    count = min(size.partitions, size.values // 12)
    body = _filled(api.request, version, _NATIVE, {"partitions": count}, _wide)
    return replaced(body, max_wait_ms=wait_ms, min_bytes=1 << 30 if wait_ms else 0)


def _of(api: Api, **changes: Any) -> Callable[[Size], Any]:
    """Return a request with every field set, and with these values."""

    def make(size: Size) -> Any:
        body = _filled(api.request, api.last_version(native=True), _NATIVE, {}, _wide)
        return replaced(body, **changes)

    return make


def _brokers(size: Size) -> Any:
    body = _many(lambda _: "0", DESCRIBE_CONFIGS, 1, _NATIVE, size)
    for resource in body.resources:
        resource.resource_type = 4
    return body


def _any_rules(size: Size) -> Any:
    body = _many(lambda _: "0", DELETE_ACLS, 1, _NATIVE, size)
    for number, wanted in enumerate(body.filters):
        wanted.resource_type = wanted.pattern_type = wanted.permission_type = 1
        wanted.principal = wanted.host = None
        wanted.resource_name = f"none-{number}"
        wanted.operation = 1
    return body


class _Native:
    NATIVE: Final = True


_NATIVE: Final[Any] = _Native()

_SPECIAL: Final[Mapping[int, Mapping[str, Callable[[Size], Any]]]] = {
    PRODUCE.key: {
        "a message for each partition": partial(_produced_sets, acks=1),
        "the same, durable": partial(_produced_sets, acks=-1),
        "a whole frame of sets": _produced_bytes,
        "one set as large as a frame": _produced_set,
        "sets with wrong checksums": _broken_sets,
    },
    FETCH.key: {
        "all there is": partial(_fetched, wait_ms=0),
        "a wait on all partitions": partial(_fetched, wait_ms=300),
    },
    METADATA.key: {"all topics": _of(METADATA, topics=None)},
    OFFSET_FETCH.key: {
        "all positions": _of(OFFSET_FETCH, topics=None),
        "names": _of(OFFSET_FETCH, topics=None, listing="names"),
    },
    DESCRIBE_LOG_DIRS.key: {"all partitions": _of(DESCRIBE_LOG_DIRS, topics=None)},
    ELECT_LEADERS.key: {
        "all partitions": lambda size: ElectLeadersRequest(topic_partitions=None),
    },
    DESCRIBE_CONFIGS.key: {"a broker many times": _brokers},
    DELETE_ACLS.key: {"filters for any rule": _any_rules},
    DESCRIBE_CLIENT_QUOTAS.key: {"all of them": _of(DESCRIBE_CLIENT_QUOTAS, components=[])},
    DESCRIBE_USER_SCRAM_CREDENTIALS.key: {
        "all of them": _of(DESCRIBE_USER_SCRAM_CREDENTIALS, users=None)
    },
    DESCRIBE_REMOVALS.key: {
        "all that left a topic, and all its partitions": lambda size: DescribeRemovalsRequest(
            topic=WIDE, partitions=list(range(min(size.partitions, size.values // 2)))
        )
    },
    COUNT_BY_TIME.key: {
        "as many intervals as there may be": lambda size: replaced(
            _of(COUNT_BY_TIME)(size), from_ms=0, until_ms=size.values, every_ms=1
        )
    },
    JOIN_GROUP.key: {},
    SYNC_GROUP.key: {},
}
