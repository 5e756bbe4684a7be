"""Kafka's ConsumerProtocol: the bytes by which members of a consumer group tell the group's leader
what they read, and by which the leader assigns partitions. Brokers pass them on unread.

    subscription  version int16, topics [string], user data (nullable bytes)
                  from version 1 on: owned partitions [topic string, [int32]]
                  from version 2 on: generation int32
                  from version 3 on: rack (nullable string)
    assignment    version int16, partitions [topic string, [int32]], user data (nullable bytes)

Counts and the sizes of bytes are int32, sizes of strings int16; -1 is null. Later versions only add
fields at the end, so a reader takes what it knows.
"""

from collections.abc import Iterable, Mapping
from struct import Struct, unpack_from
from struct import error as StructError  # noqa: N812 - it is an exception
from typing import Final

from ..values import value_class
from .api.framing import ProtocolError

TopicPartition = tuple[str, int]

NO_GENERATION: Final = -1

_VERSION_WITH_OWNED: Final = 1
_VERSION_WITH_GENERATION: Final = 2
_SUBSCRIPTION_VERSION: Final = 2
_ASSIGNMENT_VERSION: Final = 2

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


@value_class
class MemberSubscription:
    """What a member reads, and what it read before."""

    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    """Partitions that the member keeps until another assignment says otherwise."""
    generation: int = NO_GENERATION
    """Generation in which the member got `owned`; -1 if unknown."""

    def encode(self) -> bytes:
        """Return the bytes for a join-group request. Raises ValueError for too long a topic
        name."""
        parts = [_INT16.pack(_SUBSCRIPTION_VERSION), _INT32.pack(len(self.topics))]
        parts += [_string(topic) for topic in self.topics]
        parts += [_INT32.pack(-1), _partitions(self.owned), _INT32.pack(self.generation)]
        return b"".join(parts)


def read_subscription(data: bytes) -> MemberSubscription:
    """Read a subscription of any version. Raises ProtocolError."""
    reader = _ProtocolReader(data)
    version = reader.int16()
    topics = tuple(reader.string() for _ in range(reader.count()))
    reader.skip_bytes()
    owned: frozenset[TopicPartition] = frozenset()
    generation = NO_GENERATION
    if version >= _VERSION_WITH_OWNED:
        owned = frozenset(reader.partitions())
    if version >= _VERSION_WITH_GENERATION:
        generation = reader.int32()
    return MemberSubscription(topics, owned, generation)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the bytes that assign these partitions to a member."""
    return _INT16.pack(_ASSIGNMENT_VERSION) + _partitions(partitions) + _INT32.pack(-1)


def read_assignment(data: bytes) -> list[TopicPartition]:
    """Return the partitions of an assignment of any version; no bytes assign nothing. Raises
    ProtocolError."""
    if not data:
        return []
    reader = _ProtocolReader(data)
    reader.int16()
    return reader.partitions()


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > 2**15 - 1:
        raise ValueError(f"the name of a topic has at most {2**15 - 1} bytes, not {len(data)}")
    return _INT16.pack(len(data)) + data


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return _topics(by_topic)


def _topics(by_topic: Mapping[str, list[int]]) -> bytes:
    parts = [_INT32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += [_string(topic), Struct(f">i{len(numbers)}i").pack(len(numbers), *numbers)]
    return b"".join(parts)


class _ProtocolReader:
    """Reads one message from its start. Every method raises ProtocolError when bytes are
    missing."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def count(self) -> int:
        """Return the number of items that follow; each takes at least two bytes."""
        count = self.int32()
        if not 0 <= count <= (len(self._data) - self._at) // 2:
            raise ProtocolError(f"{count} items in {len(self._data)} bytes of a group's member")
        return count

    def string(self) -> str:
        try:
            return self._take(self.int16()).decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"the name of a topic is not UTF-8: {error}") from error

    def skip_bytes(self) -> None:
        size = self.int32()
        if size != -1:
            self._take(size)

    def partitions(self) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for _ in range(self.count()):
            topic, count = self.string(), self.count()
            numbers = unpack_from(f">{count}i", self._take(4 * count))
            if count and min(numbers) < 0:
                raise ProtocolError(f"partition {min(numbers)} of {topic}")
            found += [(topic, number) for number in numbers]
        return found

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise ProtocolError(f"{size} bytes after byte {self._at} of {len(self._data)}")
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def _number(self, form: Struct) -> int:
        try:
            (number,) = form.unpack_from(self._data, self._at)
        except StructError as error:
            raise ProtocolError(f"a group's member sent too few bytes: {error}") from error
        self._at += form.size
        return int(number)
