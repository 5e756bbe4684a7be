"""Which partitions a consumer reads: single ones, and topics of which it reads every one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .assigned import Assigned
from .fetching import TopicPartition


@dataclass(slots=True)
class _WholeTopic:
    """A topic of which every partition is read, also one that is added later."""

    offset: int | None
    """Where the partitions begin that it has at first; None: at their first messages."""
    count: int | None = None
    """Of its partitions; None until the broker has been asked."""
    paused: bool = False
    left_out: set[int] = field(default_factory=set)
    """Partitions that were unassigned by number."""


class Assignment:
    """The partitions that are read, in the order in which they are asked for."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, Assigned] = {}
        self._whole: dict[str, _WholeTopic] = {}

    def __bool__(self) -> bool:
        return bool(self._partitions or self._whole)

    def __iter__(self) -> Iterator[Assigned]:
        return iter(list(self._partitions.values()))

    def all(self) -> list[Assigned]:
        """The partitions that are known so far. Raises ValueError if nothing is read."""
        if not self:
            raise ValueError("nothing is assigned; call assign() first")
        return list(self)

    @property
    def keys(self) -> list[TopicPartition]:
        """The partitions that are known so far, in order."""
        return sorted(self._partitions)

    @property
    def whole_topics(self) -> list[str]:
        """The topics of which every partition is read."""
        return list(self._whole)

    @property
    def complete(self) -> bool:
        """Whether the partitions of every such topic are known."""
        return all(topic.count is not None for topic in self._whole.values())

    def get(self, key: TopicPartition) -> Assigned | None:
        """A partition that is read; None when it is not."""
        return self._partitions.get(key)

    def add(self, topic: str, partition: int | None, offset: int | None) -> None:
        """Read a partition, or every one of a topic. Raises ValueError if that is done already."""
        whole = self._whole.get(topic)
        if partition is None:
            if whole is not None:
                raise ValueError(f"{topic} is assigned already; move it with a seek")
            self._whole[topic] = _WholeTopic(offset)
            return
        left_out = whole is not None and partition in whole.left_out
        if (topic, partition) in self._partitions or (whole is not None and not left_out):
            raise ValueError(f"{topic}-{partition} is assigned already; move it with seek()")
        if whole is not None:
            whole.left_out.discard(partition)
        self._partitions[topic, partition] = Assigned(topic, partition, offset)

    def remove(self, topic: str, partition: int | None) -> list[TopicPartition]:
        """Stop reading a partition, or all of a topic; says which. Raises ValueError if none was
        read."""
        if partition is None:
            found = [assigned.key for assigned in self.of_topic(topic)]
            self._whole.pop(topic, None)
        else:
            found = [self.find(topic, partition).key]
            if topic in self._whole:
                self._whole[topic].left_out.add(partition)
        for key in found:
            del self._partitions[key]
        return found

    def find(self, topic: str, partition: int) -> Assigned:
        """A partition that is read. Raises ValueError when it is not."""
        found = self._partitions.get((topic, partition))
        whole = self._whole.get(topic)
        if found is not None:
            return found
        if whole is None or whole.count is not None or partition in whole.left_out:
            raise ValueError(f"{topic}-{partition} is not assigned; call assign() first")
        # Whether the topic has it is known when the broker has been asked.
        found = Assigned(topic, partition, whole.offset, paused=whole.paused)
        self._partitions[found.key] = found
        return found

    def of_topic(self, topic: str) -> list[Assigned]:
        """The partitions of a topic that are known so far. Raises ValueError if it is not read."""
        found = [one for one in self._partitions.values() if one.topic == topic]
        if not found and topic not in self._whole:
            raise ValueError(f"{topic} is not assigned; call assign() first")
        return found

    def position(self, topic: str, partition: int | None) -> int | None:
        """The position of a partition, or of a topic with a single one. Raises ValueError where a
        topic has more than one."""
        if partition is not None:
            return self.find(topic, partition).position
        found = self.of_topic(topic)
        if len(found) > 1:
            numbers = sorted(one.partition for one in found)
            listed = ", ".join(map(str, numbers[:-1]))
            raise ValueError(
                f"partitions {listed} and {numbers[-1]} of {topic} are assigned, and each has a "
                "position: say which"
            )
        return found[0].position if found else None

    def pause(self, topic: str, partition: int | None, *, paused: bool) -> list[TopicPartition]:
        """Pause or resume a partition, or every one of a topic; says which."""
        if partition is None:
            found = self.of_topic(topic)
            if topic in self._whole:
                self._whole[topic].paused = paused
        else:
            found = [self.find(topic, partition)]
        for assigned in found:
            assigned.paused = paused
        return [assigned.key for assigned in found]

    def note_counts(self, counts: Mapping[str, int]) -> list[str]:
        """So many partitions these topics have; says which of them had another number before."""
        changed = []
        for topic, count in counts.items():
            whole = self._whole.get(topic)
            if whole is None:
                continue
            offset = whole.offset if whole.count is None else None
            if whole.count is not None and whole.count != count:
                changed.append(topic)
            whole.count = count
            for partition in range(count):
                key = (topic, partition)
                if key not in self._partitions and partition not in whole.left_out:
                    self._partitions[key] = Assigned(*key, offset, paused=whole.paused)
        return changed

    def wanted(self) -> dict[TopicPartition, int]:
        """The partitions that are not paused, with the offset to go on from."""
        return {
            key: assigned.position or 0
            for key, assigned in self._partitions.items()
            if not assigned.paused
        }

    def take_turns(self) -> None:
        """The broker fills a response in order: next time another partition is the first."""
        for first in list(self._partitions)[:1]:
            self._partitions[first] = self._partitions.pop(first)
