"""Records of the metadata log: each is the value of one message, msgpack, `[version, kind, ...]`.

    kind           fields                                        meaning
    "topic"        name, id, partitions, {setting: text}, gaps   a topic was created
    "partitions"   name, id, partitions                          a topic's new number of partitions
    "more adopted" name, id, partitions                          the same; folders were adopted
    "renewed"      name, id, new id                              a partition begins anew
    "settings"     name, id, {setting: text}                     all settings of a topic
    "deleted"      name, id                                      a topic and its positions are gone
    "positions"    group, [position, ...]                        positions were committed
    "recommitted"  group, [position, ...]                        the same; some did not move
    "used"         group, time in ms                             the group still has members
    "forgotten"    group                                         all positions of a group are gone
    "some gone"    group, [[topic, topic id, partition], ...]    these positions of a group are gone
    "removed"      [removal, ...]                                messages left logs
    "deleted, removed"
                   name, id, [removal, ...]                      a topic and its positions are gone,
                                                                 and messages

Records about users, access rules and quotas are in `access_records`.

A position is `[topic, topic id, partition, offset, time of the last message read, leader epoch of
that message, commit time, text, retention, time of the last use]`; times in ms. The leader epoch is
-1 if it is not known. In a record "recommitted" the time at which the position last moved follows;
-1 means the commit time. A record is applied as a whole or not at all. Records "some gone" have
version 2, records about users, rules or quotas version 3, "more adopted" and "renewed" version 4,
"recommitted" version 5, records of the journal version 6, all others version 1.

A removal is `[cause, rule, topic, topic id, partition, first offset, end offset, number of
messages, time of the first message, largest time, time of the first removal, time of the last,
number of removals]`; times in ms, -1 where a number is not known.

A later release may add kinds, and fields at the end of a position. Such records then have another
version, and a broker that does not know the version stops there: it cannot know what it would leave
out.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

import msgpack

from ...protocol.api.pieces import Pieces, finish
from ...protocol.errors import HorologError
from ..directory.journal import MAX_TOPIC_REMOVALS, Cause, Removal
from ..directory.position_records import (
    NO_EPOCH,
    NOT_KNOWN,
    StoredPosition,
    check_entry,
    check_name,
)
from ..directory.topics import TopicEntry
from ..names import is_id, is_topic_name
from .access_records import (
    ACCESS_DECODERS,
    ACCESS_VERSION,
    AccessRecord,
    MalformedRecord,
    NewerRecord,
    access_fields,
)

REMOVAL_VERSION: Final = 6

REMOVED: Final = "removed"
DELETED_REMOVED: Final = "deleted, removed"

MAX_RULE_CHARACTERS: Final = 512

R = TypeVar("R")

_CAUSES: Final = frozenset(Cause)

VERSION: Final = 1
"""Version of a record, unless `_LATER` has another for its kind."""

MAX_RECORD_BYTES: Final = 16 << 20
"""Limit of a record. A commit of 100,000 positions without texts takes 9 MiB, and a request is
smaller than this limit."""

POSITIONS_IN_PIECE: Final = 500
"""Number of positions, or partitions, after which reading and writing a record give way."""

MAX_PARTITIONS: Final = 1_000_000
"""Above the maximum of `max.partitions`: a follower creates a folder for each partition."""

MAX_SETTINGS: Final = 1000
MAX_SETTING_CHARACTERS: Final = 1 << 16

TOPIC: Final = "topic"
PARTITIONS: Final = "partitions"
SETTINGS: Final = "settings"
DELETED: Final = "deleted"
POSITIONS: Final = "positions"
RECOMMITTED: Final = "recommitted"
USED: Final = "used"
FORGOTTEN: Final = "forgotten"
SOME_GONE: Final = "some gone"
MORE_ADOPTED: Final = "more adopted"
RENEWED: Final = "renewed"

_LATER: Final[Mapping[str, int]] = {
    SOME_GONE: 2,
    **dict.fromkeys(ACCESS_DECODERS, ACCESS_VERSION),
    MORE_ADOPTED: 4,
    RENEWED: 4,
    RECOMMITTED: 5,
    REMOVED: REMOVAL_VERSION,
    DELETED_REMOVED: REMOVAL_VERSION,
}
"""The versions of kinds that were added later."""

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_INT32_MAX: Final = 2**31 - 1
_POSITION_FIELDS: Final = 10
_PLACE_FIELDS: Final = 3


class MessagesRemoved(NamedTuple):
    """Messages left logs; at most `MAX_TOPIC_REMOVALS` removals."""

    removals: Sequence[Removal]


def removal_fields(removals: Sequence[Removal]) -> list[Any]:
    """Return removals as they are stored in a record."""
    return [[str(removal.cause), *removal[1:]] for removal in removals]


def decode_removals(found: Any) -> tuple[Removal, ...]:
    """Return the removals of a record. Raises `MalformedRecord`."""
    if not isinstance(found, list) or len(found) > MAX_TOPIC_REMOVALS:
        raise MalformedRecord(f"removals are not a list of up to {MAX_TOPIC_REMOVALS}")
    return tuple(map(_removal, found))


def _removal(fields: Any) -> Removal:
    if not isinstance(fields, list) or len(fields) != len(Removal._fields):
        raise MalformedRecord(f"a removal is not a list of {len(Removal._fields)}")
    cause, rule, topic, topic_id, *numbers = fields
    if not isinstance(cause, str) or cause not in _CAUSES:
        raise MalformedRecord(f"the cause of a removal is {str(cause)[:40]!r}")
    if not isinstance(rule, str) or len(rule) > MAX_RULE_CHARACTERS:
        raise MalformedRecord(f"the rule of a removal is no text of {MAX_RULE_CHARACTERS}")
    if not isinstance(topic, str) or not is_topic_name(topic):
        raise MalformedRecord(f"{str(topic)[:80]!r} is not a topic name")
    if not isinstance(topic_id, str) or not is_id(topic_id):
        raise MalformedRecord(f"{str(topic_id)[:40]!r} is not a topic id")
    if any(type(each) is not int or not -1 <= each <= _INT64_MAX for each in numbers):
        raise MalformedRecord("a number of a removal is none from -1 to 2**63-1")
    return Removal(cause, rule, topic, topic_id, *numbers)


def removed(removals: Any) -> MessagesRemoved:
    """Decode a record "removed"."""
    return MessagesRemoved(decode_removals(removals))


class TopicCreated(NamedTuple):
    """A topic was created."""

    entry: TopicEntry


class PartitionsAdded(NamedTuple):
    """A topic has more partitions: `partitions` in all."""

    name: str
    topic_id: str
    partitions: int
    gaps: bool = False
    """Whether the new partitions are adopted folders, whose offsets may have gaps."""


class TopicRenewed(NamedTuple):
    """A topic has a new id: a partition whose folder was missing begins anew, and the same offsets
    get other messages. The other partitions, and all positions, stay as they are."""

    name: str
    topic_id: str
    new_id: str


class SettingsAltered(NamedTuple):
    """The settings of a topic were replaced by `overrides`."""

    name: str
    topic_id: str
    overrides: Mapping[str, str]


class TopicDeleted(NamedTuple):
    """A topic was deleted, and all positions in it."""

    name: str
    topic_id: str
    removals: Sequence[Removal] = ()
    """The messages that left its logs."""


class PositionsCommitted(NamedTuple):
    """Positions of one group were committed."""

    group: str
    positions: Sequence[tuple[str, StoredPosition]]
    """Topic id and position of each: a later topic of the same name must not get the position."""


class PositionsUsed(NamedTuple):
    """A group was used at `used_ms`: it has members, or had until then."""

    group: str
    used_ms: int


class PositionsForgotten(NamedTuple):
    """All positions of a group were deleted."""

    group: str


class SomeForgotten(NamedTuple):
    """Some positions of a group were deleted."""

    group: str
    partitions: Sequence[tuple[str, str, int]]
    """Topic id, topic and partition of each."""


PositionRecord = PositionsCommitted | PositionsUsed | PositionsForgotten | SomeForgotten

TopicRecord = TopicCreated | PartitionsAdded | TopicRenewed | SettingsAltered | TopicDeleted

_WrittenAtOnce = TopicRecord | PositionsUsed | PositionsForgotten | AccessRecord | MessagesRemoved

MetadataRecord = _WrittenAtOnce | PositionsCommitted | SomeForgotten


def encode_record(record: MetadataRecord) -> bytes:
    """Return the bytes of a record."""
    return finish(encode_in_pieces(record))


def encode_in_pieces(record: MetadataRecord) -> Pieces[bytes]:
    """As `encode_record`, in pieces."""
    if isinstance(record, PositionsCommitted):
        return (yield from _encode_committed(*record))
    if isinstance(record, SomeForgotten):
        places = ([topic, topic_id, number] for topic_id, topic, number in record.partitions)
        count = len(record.partitions)
        return (yield from _encode_listed(SOME_GONE, record.group, count, places))
    fields = _fields(record)
    packed: bytes = msgpack.packb([_version_of(fields[0]), *fields])
    return packed


def _version_of(kind: Any) -> int:
    return _LATER.get(kind, VERSION) if isinstance(kind, str) else VERSION


def _fields(record: _WrittenAtOnce) -> list[Any]:
    """Return the kind and the fields of a record."""
    match record:
        case TopicCreated(entry):
            settings = dict(sorted(entry.overrides.items()))
            return [TOPIC, entry.name, entry.topic_id, entry.partitions, settings, entry.gaps]
        case PartitionsAdded(name, topic_id, partitions, gaps):
            return [MORE_ADOPTED if gaps else PARTITIONS, name, topic_id, partitions]
        case TopicRenewed(name, topic_id, new_id):
            return [RENEWED, name, topic_id, new_id]
        case SettingsAltered(name, topic_id, overrides):
            return [SETTINGS, name, topic_id, dict(sorted(overrides.items()))]
        case PositionsUsed(group, used_ms):
            return [USED, group, used_ms]
        case PositionsForgotten(group):
            return [FORGOTTEN, group]
    if isinstance(record, TopicDeleted | MessagesRemoved):
        return _removed_fields(record)
    return access_fields(record)


def _removed_fields(record: TopicDeleted | MessagesRemoved) -> list[Any]:
    if isinstance(record, MessagesRemoved):
        return [REMOVED, removal_fields(record.removals)]
    if not record.removals:
        return [DELETED, record.name, record.topic_id]
    return [DELETED_REMOVED, record.name, record.topic_id, removal_fields(record.removals)]


def _encode_committed(group: str, positions: Sequence[tuple[str, StoredPosition]]) -> Pieces[bytes]:
    moved = any(position.moved_ms != NOT_KNOWN for _, position in positions)
    kind = RECOMMITTED if moved else POSITIONS
    every = (_position_fields(*each) for each in positions)
    if moved:
        pairs = zip(every, positions, strict=True)
        every = ([*fields, position.moved_ms] for fields, (_, position) in pairs)
    return (yield from _encode_listed(kind, group, len(positions), every))


def _encode_listed(kind: str, group: str, count: int, items: Iterable[list[Any]]) -> Pieces[bytes]:
    """Return the bytes of a record of this kind about `count` positions or partitions."""
    packer = msgpack.Packer(autoreset=False)
    packer.pack_array_header(4)
    for value in (_version_of(kind), kind, group):
        packer.pack(value)
    packer.pack_array_header(count)
    for number, item in enumerate(items, start=1):
        packer.pack(item)
        if number % POSITIONS_IN_PIECE == 0:
            yield
    packed: bytes = packer.bytes()
    return packed


def _position_fields(topic_id: str, position: StoredPosition) -> list[Any]:
    topic, partition, offset, timestamp_ms, *rest, epoch, _ = position
    return [topic, topic_id, partition, offset, timestamp_ms, epoch, *rest]


def decode_record(data: bytes | None) -> MetadataRecord:
    """Return the record in a message's value. Raises `MalformedRecord`. No large object is created
    from a length alone, without as many bytes."""
    return finish(decode_in_pieces(data))


def decode_in_pieces(data: bytes | None) -> Pieces[MetadataRecord]:
    """As `decode_record`, in pieces."""
    if data is None:
        raise MalformedRecord("it has no value")
    if len(data) > MAX_RECORD_BYTES:
        raise MalformedRecord(f"it takes {len(data)} bytes; {MAX_RECORD_BYTES} is the most")
    try:
        fields = msgpack.unpackb(data)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        # The error may quote the bytes: salts and keys must not be shown.
        raise MalformedRecord(f"it is not msgpack: {type(error).__name__}") from None
    if not isinstance(fields, list) or len(fields) < 2 or type(fields[0]) is not int:
        raise MalformedRecord("it is not a list that begins with version and kind")
    version, kind, *rest = fields
    if version not in (VERSION, *_LATER.values()):
        raise NewerRecord(
            f"it has version {version}, this Horolog knows {VERSION} to {max(_LATER.values())}; "
            "start the version that wrote it, or a later one"
        )
    if version != _version_of(kind):
        raise MalformedRecord(f"it has version {version}, and its kind is {str(kind)[:40]!r}")
    decode = _DECODERS.get(kind) if isinstance(kind, str) else None
    if decode is None:
        raise MalformedRecord(f"its kind is {str(kind)[:40]!r}, which is none")
    try:
        found = decode(*rest)
        return (yield from found) if isinstance(found, Generator) else found
    except HorologError as error:
        raise MalformedRecord(f"{kind}: {error.message}") from error
    except TypeError as error:
        raise MalformedRecord(f"{kind}: {len(rest)} fields, or one of another type") from error


def _topic(name: Any, topic_id: Any, partitions: Any, settings: Any, gaps: Any) -> TopicCreated:
    if type(gaps) is not bool:
        raise MalformedRecord("gaps is neither true nor false")
    entry = TopicEntry(
        name=_name(name),
        partitions=_count(partitions),
        topic_id=_id(topic_id),
        overrides=_settings(settings),
    )
    return TopicCreated(replace(entry, gaps=gaps))


def _partitions(name: Any, topic_id: Any, partitions: Any) -> PartitionsAdded:
    return PartitionsAdded(_name(name), _id(topic_id), _count(partitions))


def _more_adopted(name: Any, topic_id: Any, partitions: Any) -> PartitionsAdded:
    return PartitionsAdded(_name(name), _id(topic_id), _count(partitions), gaps=True)


def _renewed(name: Any, topic_id: Any, new_id: Any) -> TopicRenewed:
    return TopicRenewed(_name(name), _id(topic_id), _id(new_id))


def _altered(name: Any, topic_id: Any, settings: Any) -> SettingsAltered:
    return SettingsAltered(_name(name), _id(topic_id), _settings(settings))


def _deleted(name: Any, topic_id: Any) -> TopicDeleted:
    return TopicDeleted(_name(name), _id(topic_id))


def _deleted_removed(name: Any, topic_id: Any, removals: Any) -> TopicDeleted:
    return TopicDeleted(_name(name), _id(topic_id), decode_removals(removals))


def _committed(group: Any, positions: Any) -> Pieces[PositionsCommitted]:
    found = yield from _each(positions, _position)
    return PositionsCommitted(_group(group), found)


def _recommitted(group: Any, positions: Any) -> Pieces[PositionsCommitted]:
    found = yield from _each(positions, _with_move)
    return PositionsCommitted(_group(group), found)


def _each(items: Any, decode: Callable[[Any], R]) -> Pieces[tuple[R, ...]]:
    """Decode each item of a list."""
    if not isinstance(items, list):
        raise MalformedRecord("positions or partitions are not a list")
    found: list[R] = []
    for item in items:
        found.append(decode(item))
        if len(found) % POSITIONS_IN_PIECE == 0:
            yield
    return tuple(found)


def _with_move(fields: Any) -> tuple[str, StoredPosition]:
    if not isinstance(fields, list):
        raise MalformedRecord("positions are not a list of lists")
    topic_id, position = _position(fields[:-1])
    moved_ms = fields[-1]
    if type(moved_ms) is not int or not _INT64_MIN <= moved_ms <= _INT64_MAX:
        raise MalformedRecord("the time of the last move is no number of 64 bits")
    return topic_id, position._replace(moved_ms=moved_ms)


def _used(group: Any, used_ms: Any) -> PositionsUsed:
    if type(used_ms) is not int or not _INT64_MIN <= used_ms <= _INT64_MAX:
        raise MalformedRecord("the time of the last use is no number of 64 bits")
    return PositionsUsed(_group(group), used_ms)


def _forgotten(group: Any) -> PositionsForgotten:
    return PositionsForgotten(_group(group))


def _some_gone(group: Any, partitions: Any) -> Pieces[SomeForgotten]:
    found = yield from _each(partitions, _place)
    return SomeForgotten(_group(group), found)


def _place(fields: Any) -> tuple[str, str, int]:
    if not isinstance(fields, list) or len(fields) != _PLACE_FIELDS:
        raise MalformedRecord(f"a partition is not a list of {_PLACE_FIELDS}")
    topic, topic_id, partition = fields
    if type(partition) is not int or not 0 <= partition <= _INT32_MAX:
        raise MalformedRecord(f"partition {str(partition)[:40]} is not 0 to {_INT32_MAX}")
    return _id(topic_id), _name(topic), partition


_DECODERS: Final[Mapping[str, Callable[..., MetadataRecord | Pieces[MetadataRecord]]]] = {
    TOPIC: _topic,
    PARTITIONS: _partitions,
    SETTINGS: _altered,
    DELETED: _deleted,
    POSITIONS: _committed,
    RECOMMITTED: _recommitted,
    USED: _used,
    FORGOTTEN: _forgotten,
    SOME_GONE: _some_gone,
    MORE_ADOPTED: _more_adopted,
    RENEWED: _renewed,
    REMOVED: removed,
    DELETED_REMOVED: _deleted_removed,
    **ACCESS_DECODERS,
}


def _name(name: Any) -> str:
    if not isinstance(name, str) or not is_topic_name(name):
        raise MalformedRecord(f"{str(name)[:80]!r} is not a topic name")
    return name


def _id(topic_id: Any) -> str:
    if not isinstance(topic_id, str) or not is_id(topic_id):
        raise MalformedRecord(f"{str(topic_id)[:40]!r} is not a topic id")
    return topic_id


def _count(partitions: Any) -> int:
    if type(partitions) is not int or not 1 <= partitions <= MAX_PARTITIONS:
        raise MalformedRecord(
            f"partitions is {str(partitions)[:40]}; it must be 1 to {MAX_PARTITIONS}"
        )
    return partitions


def _settings(settings: Any) -> dict[str, str]:
    if not isinstance(settings, dict) or len(settings) > MAX_SETTINGS:
        raise MalformedRecord(f"settings are not up to {MAX_SETTINGS} texts by name")
    for name, value in settings.items():
        texts = isinstance(name, str) and isinstance(value, str)
        if not texts or max(len(name), len(value)) > MAX_SETTING_CHARACTERS:
            raise MalformedRecord(f"setting {str(name)[:80]!r} is not a text by name")
    return settings


def _group(group: Any) -> str:
    if not isinstance(group, str):
        raise MalformedRecord(f"{str(group)[:40]!r} is not a group's name")
    check_name(group)
    return group


def _position(fields: Any) -> tuple[str, StoredPosition]:
    if not isinstance(fields, list) or len(fields) != _POSITION_FIELDS:
        raise MalformedRecord(f"a position is not a list of {_POSITION_FIELDS}")
    topic, topic_id, partition, offset, timestamp_ms, epoch, commit_time_ms, metadata, *expiry = (
        fields
    )
    numbers = (partition, offset, timestamp_ms, epoch, commit_time_ms, *expiry)
    for number in numbers:
        if type(number) is not int or not _INT64_MIN <= number <= _INT64_MAX:
            raise MalformedRecord("a number of a position is none from -2**63 to 2**63-1")
    if not isinstance(metadata, str):
        raise MalformedRecord("the text beside a position is none")
    if not NO_EPOCH <= epoch <= _INT32_MAX:
        raise MalformedRecord(f"the leader epoch of a position is {epoch}")
    retention_ms, used_ms = expiry
    # By position: keywords take twice as long, and a state may have a million positions.
    position = StoredPosition(
        _name(topic),
        partition,
        offset,
        timestamp_ms,
        commit_time_ms,
        metadata,
        retention_ms,
        used_ms,
        epoch,
    )
    check_entry(position)
    return _id(topic_id), position
