"""Estimates how much memory a request takes with its answer, before either is made.

    form        the message object decoded from a frame: its items, with the bytes that each takes
                and the most items that a frame of a size can have
    answer      the answer to each item of the request, and notes about the item meanwhile
    announced   what else an answer has, from the broker's state: the intervals of a count, the
                partitions of all topics, the members of a group; the searches of windows

Record sets of produce and fetch are not included. Record sets of a produce are views of its frame,
and are appended at once. Messages of a fetch are read when its answer is to be sent, or sent from
their file.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, cast

from ..config.broker import BROKER_SETTINGS
from ..config.topic import TOPIC_SETTINGS
from ..protocol.api.cluster.replicate import REPLICATE
from ..protocol.api.groups.describe_groups import DESCRIBE_GROUPS
from ..protocol.api.groups.list_groups import LIST_GROUPS
from ..protocol.api.groups.offset_fetch import LIST_NAMES, OFFSET_FETCH
from ..protocol.api.kafka.fields import smallest_size, values_in
from ..protocol.api.kafka.refusals import answering_array
from ..protocol.api.log.count_by_time import COUNT_BY_TIME
from ..protocol.api.log.describe_log import DESCRIBE_LOG
from ..protocol.api.log.describe_log_dirs import DESCRIBE_LOG_DIRS
from ..protocol.api.log.describe_producers import DESCRIBE_PRODUCERS
from ..protocol.api.log.describe_removals import DESCRIBE_REMOVALS
from ..protocol.api.log.fetch import FETCH
from ..protocol.api.log.list_offsets import LIST_OFFSETS
from ..protocol.api.log.produce import PRODUCE
from ..protocol.api.schema import (
    Api,
    Array,
    Boolean,
    Data,
    Field,
    Float,
    Integer,
    Records,
    Text,
    WireType,
    all_fields,
    fields_of,
    is_flexible,
)
from ..protocol.api.security.acls import DELETE_ACLS, DESCRIBE_ACLS
from ..protocol.api.security.client_quotas import DESCRIBE_CLIENT_QUOTAS
from ..protocol.api.security.scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from ..protocol.api.topics.create_partitions import CREATE_PARTITIONS
from ..protocol.api.topics.create_topics import CREATE_TOPICS
from ..protocol.api.topics.delete_topics import DELETE_TOPICS
from ..protocol.api.topics.describe_configs import BROKER_RESOURCE, DESCRIBE_CONFIGS
from ..protocol.api.topics.elect_leaders import ELECT_LEADERS
from ..protocol.api.topics.metadata import METADATA
from ..protocol.limits import (
    MAX_DESCRIBED_WINDOWS,
    MAX_INTERVALS,
    MAX_LISTED,
    MAX_LISTED_PRODUCERS,
    MAX_REQUEST_VALUES,
    MAX_WINDOW_PARTITIONS,
)
from ..protocol.window_topics import MAX_WINDOW_PARTS, SEPARATOR, base_of, may_name_window
from ..storage.directory.topics import TopicEntry
from ..values import value_class
from .handlers.base import Services

LARGE_BYTES: Final = 64 * 1024
"""Requests that take more memory are large: a connection may have few of them at a time."""

BASE_BYTES: Final = 4 * 1024
"""Memory of any request: its task, its answer, and the objects that hold them."""

_TEXT_BYTES: Final = 56
_DATA_BYTES: Final = 40
_NUMBER_BYTES: Final = 32
_LIST_BYTES: Final = 64
"""Sizes of Python objects, without the bytes of a text."""

_SLOT_BYTES: Final = 8
"""Size of an entry in a list."""

_STRUCT_BYTES: Final = 24
"""Size of a message object, without its fields."""

_SENTENCE_BYTES: Final = 250
"""Size of an error message, which quotes the wrong value."""

_NOTED_BYTES: Final = 200
"""Size of what a handler notes about an item while it answers the request."""

_SEARCHED_BYTES: Final = 800
"""Size of the search of a partition of a window, beyond what any partition of a fetch takes."""

_INTERVAL_BYTES: Final = 64
"""Size of an interval of a count: in an array, as a number in a list, and encoded."""

_PARTITION_BYTES: Final = 700
"""Size of a partition with its replicas in an answer that lists partitions."""

_SEGMENT_BYTES: Final = 900
"""Size of a segment in an answer, with its times and the verdict of retention."""

_PRODUCER_BYTES: Final = 500
"""Size of a producer in an answer."""

_REMOVAL_BYTES: Final = 900
"""Size of a removal in an answer."""

_OFFSET_BYTES: Final = 50
"""Size of an offset in an answer of the first version of list-offsets."""

_POSITION_BYTES: Final = 700
"""Size of a position in an answer, without its metadata text."""

_NAME_BYTES: Final = 400
"""Size of a user or a group in an answer that lists names."""

_RULE_BYTES: Final = 600
"""Size of an access rule in an answer."""

_QUOTA_BYTES: Final = 1_200
"""Size of an entity with its quotas in an answer."""

_SETTING_BYTES: Final = 700
"""Size of a setting in an answer, with its synonyms."""

_WAITS_AND_COPIES: Final = frozenset({PRODUCE.key, REPLICATE.key})
"""APIs whose items are not counted: a produce holds only its frame; a follower has bounds of its
own, and one request at a time."""

_MORE_NOTED_BYTES: Final = {
    CREATE_TOPICS.key: 3_000,
    DELETE_TOPICS.key: 3_000,
    CREATE_PARTITIONS.key: 3_000,
    DELETE_ACLS.key: 800,
}
"""Additional size of notes about an item: a change of a topic that is under way with the reason of
a refusal, or a filter of access rules."""


@value_class
class _Items:
    """The items of one array of a request."""

    field: str
    smallest_bytes: int
    """The smallest encoded size of an item in a frame."""
    most: int
    """The most items in all arrays of this field together."""
    item_bytes: int
    """Memory of an item with its answer."""
    inner: "tuple[_Items, ...]"
    """The arrays in each item."""


class Weight:
    """The memory estimate for requests of one API and version, in bytes."""

    __slots__ = ("_announced", "_densest", "_items", "small_frame_bytes")

    def __init__(self, api: Api, version: int, *, native: bool) -> None:
        self._items: tuple[_Items, ...] = ()
        self._announced: Announced | None = None
        if api.key not in _WAITS_AND_COPIES:
            answers = _answers(api.response, version, native=native)
            if answers:
                answers[0] += _MORE_NOTED_BYTES.get(api.key, 0)
            self._items = _items(api.request, version, native, answers, 1)
            self._announced = ANNOUNCED.get(api.key)
        self._densest = sorted(
            _flat(self._items), key=lambda each: each.item_bytes / each.smallest_bytes, reverse=True
        )
        """The arrays, sorted by memory for each encoded byte, largest first."""
        self.small_frame_bytes = self._small_frame_bytes()
        """The largest frame that cannot take more than `LARGE_BYTES`, apart from what its answer
        announces."""

    def of_frame(self, size_bytes: int) -> int:
        """Return the most memory of a request with a frame of this size, without what its answer
        announces."""
        total = BASE_BYTES + 2 * size_bytes
        for each in self._densest:
            count = min(size_bytes // each.smallest_bytes, each.most)
            total += count * each.item_bytes
            size_bytes -= count * each.smallest_bytes
        return total

    def of_request(self, services: Services, request: Any, version: int) -> int:
        """Return the memory of a decoded request, without its texts, including what its answer
        announces."""
        announced = self._announced
        more = 0 if announced is None else announced(services, request, version)
        return self.of_items(request) + more

    def of_items(self, request: Any) -> int:
        """As `of_request`, without what its answer announces."""
        return BASE_BYTES + _bytes_of(request, self._items)

    def _small_frame_bytes(self) -> int:
        low, high = 0, LARGE_BYTES
        while low < high:
            middle = (low + high + 1) // 2
            if self.of_frame(middle) <= LARGE_BYTES:
                low = middle
            else:
                high = middle - 1
        return low


def _make_weight(api_key: int, version: int, native: bool) -> Weight:
    from ..protocol.api.registry import APIS

    return Weight(APIS[api_key], version, native=native)


weight_of: Final = cast(Callable[[int, int, bool], Weight], cache(_make_weight))
"""The weight of requests by api key, version, and whether they are in the native encoding."""


def _bytes_of(message: Any, arrays: Iterable[_Items]) -> int:
    total = 0
    for each in arrays:
        items = getattr(message, each.field)
        if not items:
            continue
        total += len(items) * each.item_bytes
        if each.inner:
            inner = each.inner
            total += sum(_bytes_of(item, inner) for item in items)
    return total


def _flat(arrays: Iterable[_Items]) -> Iterable[_Items]:
    for each in arrays:
        yield each
        yield from _flat(each.inner)


def _items(
    struct: type[Any], version: int, native: bool, answers: list[int], outer: int
) -> tuple[_Items, ...]:
    """Return the arrays of a message that occurs up to `outer` times. `answers` has the size of the
    answer to an item of the first array, then of the first array in that item, and so on."""
    found: list[_Items] = []
    compact = not native and is_flexible(struct, version)
    for spec in fields_of(struct, version, native=native):
        if not isinstance(spec.type, Array):
            continue
        of = spec.type.of
        of_answer, *inner_answers = answers or [0]
        if found:
            of_answer, inner_answers = 0, []
        most = min(outer * spec.type.max_items, MAX_REQUEST_VALUES)
        inner: tuple[_Items, ...] = ()
        if isinstance(of, type):
            most = min(most, MAX_REQUEST_VALUES // values_in(of, version))
            inner = _items(of, version, native, inner_answers, most)
        smallest = _smallest(of, version, native=native, compact=compact)
        item_bytes = _SLOT_BYTES + _object_bytes(of, version) + of_answer + _NOTED_BYTES
        found.append(_Items(spec.name, smallest, most, item_bytes, inner))
    return tuple(found)


def _smallest(wire_type: WireType | type[Any], version: int, *, native: bool, compact: bool) -> int:
    """Return the smallest encoded size of a value in a frame."""
    if not native and not compact:
        return max(smallest_size(wire_type, version), 1)
    if not isinstance(wire_type, type):
        return wire_type.bits // 8 if compact and isinstance(wire_type, Integer) else 1

    def smallest(spec: Field) -> int:
        return _smallest(spec.type, version, native=native, compact=compact)

    specs = fields_of(wire_type, version, native=native)
    if compact:
        return 1 + sum(map(smallest, specs))
    # A map that has only the fields without a default.
    return 1 + sum(1 + len(spec.name) + smallest(spec) for spec in specs if spec.required)


def _object_bytes(wire_type: WireType | type[Any], version: int | None = None) -> int:
    """Return the memory of a value as an object, without the bytes of texts and the items of
    arrays. Of the fields that the version does not have, only lists take memory."""
    match wire_type:
        case Integer() | Float():
            return _NUMBER_BYTES
        case Boolean():
            return 0
        case Text():
            return _TEXT_BYTES
        case Data() | Records():
            return _DATA_BYTES
        case Array():
            return _LIST_BYTES
        case type():
            specs = all_fields(wire_type)
            fields = sum(
                _object_bytes(spec.type, version)
                for spec in specs
                if version is None or spec.in_version(version) or isinstance(spec.type, Array)
            )
            return _STRUCT_BYTES + _SLOT_BYTES * len(specs) + fields


def _answers(struct: type[Any], version: int, *, native: bool) -> list[int]:
    """Return the memory of the answer to an item of the request, then to an item nested in it, and
    so on: as objects and encoded, with an error message if there may be one."""
    array = answering_array(struct)
    if array is None or not isinstance(array.type, Array):
        return []
    inner = array.type.of
    assert isinstance(inner, type)
    specs = fields_of(inner, version, native=native)
    encoded = sum(len(spec.name) + 10 if native else 10 for spec in specs)
    says_why = any(isinstance(spec.type, Text) and spec.type.clipped for spec in specs)
    sentences = _SENTENCE_BYTES * (2 if says_why else 1)
    item_bytes = _SLOT_BYTES + _object_bytes(inner) + encoded + sentences
    return [item_bytes, *_answers(inner, version, native=native)]


# What answers announce.

Announced = Callable[[Services, Any, int], int]


def _count(services: Services, request: Any, version: int) -> int:
    length_ms = request.until_ms - request.from_ms
    every_ms = request.every_ms
    intervals = -(-length_ms // every_ms) if every_ms > 0 and length_ms > 0 else 1
    return min(intervals, MAX_INTERVALS) * _INTERVAL_BYTES


def _partitions(services: Services, names: Iterable[str] | None) -> int:
    """Return how many partitions the named topics have; with `None`, all topics."""
    topics = services.directory.topics()
    if names is None:
        return sum(entry.partitions for entry in topics.values())
    stored = windows = 0
    for name in set(names):
        entry = topics.get(name)
        if entry is not None:
            stored += entry.partitions
        elif windows < MAX_WINDOW_PARTITIONS and may_name_window(name):
            windows += _window_partitions(topics, name)
    return stored + windows


def _window_partitions(topics: Mapping[str, TopicEntry], name: str) -> int:
    """Return how many partitions a window has at most, 0 if there is no such window. The name is
    not parsed, which would take ten times as long: of what may be its base, the topic with the most
    partitions counts."""
    most, base = 0, name
    for _ in range(MAX_WINDOW_PARTS):
        base, separator, _ = base.rpartition(SEPARATOR)
        if not separator:
            break
        entry = topics.get(base)
        if entry is not None:
            most = max(most, entry.partitions)
    return most


def _searched_windows(services: Services, request: Any, version: int) -> int:
    """The names are not parsed: some may be no windows."""
    stored = services.directory.topics()
    return _SEARCHED_BYTES * sum(
        len(topic.partitions)
        for topic in request.topics
        if may_name_window(topic.name) and topic.name not in stored
    )


def _metadata(services: Services, request: Any, version: int) -> int:
    names = None
    if request.topics or (version > 0 and request.topics is not None):
        names = [topic.name for topic in request.topics]
    return _PARTITION_BYTES * _partitions(services, names)


def _log_dirs(services: Services, request: Any, version: int) -> int:
    return 0 if request.topics is not None else _PARTITION_BYTES * _partitions(services, None)


def _segments(services: Services, request: Any, most: int | None = None) -> int:
    """Return how many segments the logs named by a request have, with at most `most` counted for
    each log."""
    total = 0
    opened = services.directory.opened_log
    for topic in request.topics:
        numbers = {getattr(each, "partition", each) for each in topic.partitions}
        for number in numbers:
            log = opened((topic.name, number))
            if log is not None:
                segments = len(log.segments) + 1
                total += segments if most is None else min(segments, most)
    return total


def _described_logs(services: Services, request: Any, version: int) -> int:
    return _SEGMENT_BYTES * _segments(services, request)


def _described_removals(services: Services, request: Any, version: int) -> int:
    removals = len(services.metadata.removals(base_of(services.directory.topics(), request.topic)))
    return _REMOVAL_BYTES * removals


def _refused_elections(services: Services, request: Any, version: int) -> int:
    if request.topic_partitions is not None:
        return 0
    return (_NUMBER_BYTES + _SENTENCE_BYTES) * _partitions(services, None)


def _described_producers(services: Services, request: Any, version: int) -> int:
    total = 0
    opened = services.directory.opened_log
    for topic in request.topics:
        for number in set(topic.partitions):
            log = opened((topic.name, number))
            if log is not None:
                total += min(len(log.producers.states), MAX_LISTED_PRODUCERS)
    return _PRODUCER_BYTES * total


def _listed_offsets(services: Services, request: Any, version: int) -> int:
    if version > 0:
        return 0
    asked = (each.max_num_offsets for topic in request.topics for each in topic.partitions)
    return _OFFSET_BYTES * _segments(services, request, max(asked, default=0))


def _positions(services: Services, request: Any, version: int) -> int:
    store = services.directory.committed
    if request.listing == LIST_NAMES:
        return _NAME_BYTES * min(len(store), MAX_LISTED)
    count = store.count_of(request.group_id)
    text_bytes = min(count * services.settings.offset_metadata_max_bytes, store.size_bytes)
    if request.topics is not None and not request.listing:
        return 2 * text_bytes
    return _POSITION_BYTES * count + 2 * text_bytes


def _described_groups(services: Services, request: Any, version: int) -> int:
    groups = services.groups.coordinator.groups
    known = (groups.get(name) for name in set(request.groups))
    return sum(2 * group.size_bytes for group in known if group is not None)


def _listed_groups(services: Services, request: Any, version: int) -> int:
    groups, store = services.groups.coordinator.groups, services.directory.committed
    return _NAME_BYTES * min(len(groups) + len(store), 2 * MAX_LISTED)


def _described_settings(services: Services, request: Any, version: int) -> int:
    resources = {(each.resource_type, each.resource_name) for each in request.resources}
    topics = services.directory.topics()
    of_topic, of_broker = 2 * len(TOPIC_SETTINGS), len(BROKER_SETTINGS) + len(TOPIC_SETTINGS)
    settings = windows = 0
    for kind, name in resources:
        if kind == BROKER_RESOURCE:
            settings += of_broker
        elif name in topics:
            settings += of_topic
        elif windows < MAX_DESCRIBED_WINDOWS and may_name_window(name):
            windows += _window_partitions(topics, name) > 0
    return _SETTING_BYTES * (settings + of_topic * windows)


def _described_rules(services: Services, request: Any, version: int) -> int:
    return _RULE_BYTES * len(services.security.acls.table.acls)


def _deleted_rules(services: Services, request: Any, version: int) -> int:
    return _described_rules(services, request, version) * len(request.filters)


def _described_users(services: Services, request: Any, version: int) -> int:
    return _NAME_BYTES * len(services.security.users)


def _described_quotas(services: Services, request: Any, version: int) -> int:
    return _QUOTA_BYTES * len(services.security.quotas.table.quotas)


ANNOUNCED: Final[Mapping[int, Announced]] = MappingProxyType(
    {
        COUNT_BY_TIME.key: _count,
        FETCH.key: _searched_windows,
        METADATA.key: _metadata,
        DESCRIBE_LOG_DIRS.key: _log_dirs,
        DESCRIBE_LOG.key: _described_logs,
        DESCRIBE_REMOVALS.key: _described_removals,
        ELECT_LEADERS.key: _refused_elections,
        DESCRIBE_PRODUCERS.key: _described_producers,
        LIST_OFFSETS.key: _listed_offsets,
        OFFSET_FETCH.key: _positions,
        DESCRIBE_GROUPS.key: _described_groups,
        LIST_GROUPS.key: _listed_groups,
        DESCRIBE_CONFIGS.key: _described_settings,
        DESCRIBE_ACLS.key: _described_rules,
        DELETE_ACLS.key: _deleted_rules,
        DESCRIBE_USER_SCRAM_CREDENTIALS.key: _described_users,
        DESCRIBE_CLIENT_QUOTAS.key: _described_quotas,
    }
)
"""By API key, how many bytes a request takes with its answer beyond its items."""
