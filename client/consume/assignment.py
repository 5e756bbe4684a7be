"""Which partitions a consumer reads: single ones, and topics of which it reads every one; and what
is asked of a cluster about them, beside the fetches."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from ...clock import Clock
from ...protocol.api.framing import ProtocolError
from ...protocol.api.log.fetch import FetchPartitionResult
from ...protocol.api.log.list_offsets import EARLIEST
from ...protocol.errors import OffsetOutOfRange
from ...protocol.lag import Lag, Pace
from ...protocol.records.kernel import Walk
from ..administer.lagging import lags_at
from ..administer.searching import By, find_offset, offsets_at
from ..cluster.retry import retry
from ..cluster.route import Route
from ..results import ConsumerRecord, FindResult
from .fetches import Fetches, Results
from .fetching import FetchOptions, TopicPartition, entries_of, next_offset

T = TypeVar("T")

_OUT_OF_RANGE: Final = frozenset((OffsetOutOfRange.code,))


@dataclass(slots=True)
class Assigned:
    """An assigned partition, with the offset of the next message to return."""

    topic: str
    partition: int
    position: int | None = None
    """Next offset; None until reading begins, at the first message stored."""
    timestamp_ms: int | None = None
    """Timestamp of the last message that was returned."""
    paused: bool = False
    pace: Pace = field(default_factory=Pace)

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    def move(self, offset: int | None) -> None:
        """Continue at another offset; None: at the first message stored."""
        self.position = offset
        self.timestamp_ms = None
        self.pace = Pace()

    def given_out(self, record: ConsumerRecord) -> None:
        """Move the position behind this message."""
        self.position = record.offset + 1
        self.timestamp_ms = record.timestamp_ms

    def note_end(self, now: float, end_offset: int) -> None:
        """Record that the partition ends at `end_offset`; `now` is in seconds on a monotonic
        clock."""
        if self.position is not None:
            self.pace.note(now, self.position, max(end_offset, self.position))

    def catch_up_seconds(self, now: float, messages: int) -> float | None:
        """Estimate the seconds until the position reaches the end, which is `messages` ahead; None
        if unknown."""
        if self.position is None:
            return None
        end_offset = self.position + messages
        self.pace.note(now, self.position, end_offset)
        return self.pace.catch_up_seconds(now, self.position, end_offset)


@dataclass(slots=True)
class _WholeTopic:
    """A topic read as a whole, including partitions that are added later."""

    offset: int | None
    """Start offset of the partitions that exist at first; None: their first messages."""
    count: int | None = None
    """Number of partitions; None until the broker has been asked."""
    paused: bool = False
    left_out: set[int] = field(default_factory=set)
    """Partitions that were unassigned one by one."""


class Assignment:
    """The assigned partitions, in the order in which fetches name them."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, Assigned] = {}
        self._whole: dict[str, _WholeTopic] = {}
        self.is_of_group = False
        """Whether a consumer group decides the assignment, which may be empty."""

    def __bool__(self) -> bool:
        return bool(self._partitions or self._whole) or self.is_of_group

    def __iter__(self) -> Iterator[Assigned]:
        return iter(list(self._partitions.values()))

    def all(self) -> list[Assigned]:
        """Return the partitions known so far. Raises ValueError if nothing is assigned."""
        if not self:
            raise ValueError("nothing is assigned; call assign() or subscribe() first")
        return list(self)

    @property
    def keys(self) -> list[TopicPartition]:
        """The partitions known so far, sorted."""
        return sorted(self._partitions)

    @property
    def is_empty(self) -> bool:
        """Whether no partitions are known so far."""
        return not self._partitions

    @property
    def whole_topics(self) -> list[str]:
        """Topics read as a whole."""
        return list(self._whole)

    @property
    def complete(self) -> bool:
        """Whether the partitions of every whole topic are known."""
        return all(topic.count is not None for topic in self._whole.values())

    def get(self, key: TopicPartition) -> Assigned | None:
        """Return an assigned partition; None when it is not assigned."""
        return self._partitions.get(key)

    def add(self, topic: str, partition: int | None, offset: int | None) -> None:
        """Assign a partition, or with None a whole topic. Raises ValueError if it is assigned
        already."""
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
        """Unassign a partition, or with None a whole topic, and return the removed partitions.
        Raises ValueError if none was assigned."""
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
        """Return an assigned partition. Raises ValueError if it is not assigned."""
        found = self._partitions.get((topic, partition))
        whole = self._whole.get(topic)
        if found is not None:
            return found
        if whole is None or whole.count is not None or partition in whole.left_out:
            raise ValueError(f"{topic}-{partition} is not assigned; call assign() first")
        # Whether the topic has this partition is known only after the broker was asked.
        found = Assigned(topic, partition, whole.offset, paused=whole.paused)
        self._partitions[found.key] = found
        return found

    def of_topic(self, topic: str) -> list[Assigned]:
        """Return the partitions of a topic known so far. Raises ValueError if the topic is not
        assigned."""
        found = [one for one in self._partitions.values() if one.topic == topic]
        if not found and topic not in self._whole:
            raise ValueError(f"{topic} is not assigned; call assign() first")
        return found

    def position(self, topic: str, partition: int | None) -> int | None:
        """Return the position of a partition; None as partition is allowed for a topic with one
        partition, and raises ValueError if there are more."""
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
        """Pause or resume a partition, or with None all of a topic, and return the changed
        partitions."""
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
        """Record the number of partitions of each topic. Returns the topics whose number has
        changed."""
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
        """Return the partitions that are not paused, each with its next offset."""
        return {
            key: assigned.position or 0
            for key, assigned in self._partitions.items()
            if not assigned.paused
        }

    def take_turns(self) -> None:
        """Move the first partition to the end of the order, because the broker fills a response in
        order."""
        first = next(iter(self._partitions), None)
        if first is not None:
            self._partitions[first] = self._partitions.pop(first)


class AssignmentRequests:
    """Sends requests about the assigned partitions, and repeats them while the cluster is
    unavailable."""

    def __init__(
        self,
        cluster: Route,
        assigned: Assignment,
        clock: Clock,
        *,
        retry_timeout_ms: int,
    ) -> None:
        self.cluster = cluster
        self._assigned = assigned
        self.clock = clock
        self._retry_timeout_ms = retry_timeout_ms
        self._metadata_asked: float | None = None
        """Time of the last metadata request for whole topics, on the monotonic clock."""

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to a request, which is repeated for up to `retry_timeout_ms`."""
        return await retry(question, timeout_ms=self._retry_timeout_ms, setting="retry_timeout_ms")

    async def find_partitions(self, *, max_age_s: float = 0.0) -> None:
        """Find the partitions of whole topics, unless they were requested within the last
        `max_age_s`."""
        topics = self._assigned.whole_topics
        asked, now = self._metadata_asked, self.clock.monotonic()
        lately = asked is not None and now - asked < max_age_s
        if not topics or (lately and self._assigned.complete):
            return
        counts = await self.ask(partial(self.cluster.partition_counts, topics))
        self._metadata_asked = now
        for topic in self._assigned.note_counts(counts):
            self.cluster.forget(topic)  # also which broker of a cluster leads which partition

    async def find_beginnings(self) -> None:
        """Set each partition that has no position to its first message stored."""
        for assigned in self._assigned.all():
            if assigned.position is None:
                offset = await self._offset(assigned.key, EARLIEST)
                if assigned.position is None:
                    assigned.position = offset

    async def offsets(self, sentinel: int) -> dict[TopicPartition, int]:
        """Return the first or the end offset of each partition; `sentinel` is EARLIEST or
        LATEST."""
        await self.find_partitions()
        return {
            assigned.key: await self._offset(assigned.key, sentinel)
            for assigned in self._assigned.all()
        }

    async def search(self, target_ms: int, by: By) -> dict[TopicPartition, FindResult]:
        """Search each partition for the first message of that time or later."""
        await self.find_partitions()
        return {
            assigned.key: await self.ask(
                partial(find_offset, self.cluster, *assigned.key, target_ms, by=by)
            )
            for assigned in self._assigned.all()
        }

    async def lags(self) -> dict[TopicPartition, Lag]:
        """Return how far each position is behind the end of its partition. Raises the errors that
        the broker reports for a partition."""
        await self.find_partitions()
        await self.find_beginnings()
        offsets = {assigned.key: assigned.position or 0 for assigned in self._assigned}
        lags: dict[TopicPartition, Lag] = {}
        ask = partial(lags_at, self.cluster, offsets, now_ms=self.clock.now_ms())
        for found in await self.ask(ask):
            if found.error is not None or found.lag is None:
                raise found.error or ProtocolError(f"no lag of {found.topic}-{found.partition}")
            key = (found.topic, found.partition)
            assigned = self._assigned.get(key)
            if assigned is not None:
                catch_up = assigned.catch_up_seconds(self.clock.monotonic(), found.lag.messages)
                lags[key] = replace(found.lag, catch_up_seconds=catch_up)
        return lags

    async def _offset(self, key: TopicPartition, sentinel: int) -> int:
        found = await self.ask(partial(offsets_at, self.cluster, *key, [sentinel]))
        return found[0].offset or 0


Fetched = tuple[Assigned, int, FetchPartitionResult, Walk]
"""Answer of a fetch for one partition: the assignment, the requested offset, the result, its
entries."""


class AssignmentFetches:
    """Fetches each partition from its position, and in advance where more messages are stored."""

    def __init__(
        self,
        options: FetchOptions,
        assigned: Assignment,
        requests: AssignmentRequests,
        *,
        metadata_max_age_ms: int,
    ) -> None:
        """Partitions added to whole topics are found within `metadata_max_age_ms`. Raises
        UnsupportedVersion for options that Kafka does not support."""
        self._assigned = assigned
        self._requests = requests
        self._metadata_max_age_s = metadata_max_age_ms / 1000
        self._fetches = Fetches(requests.cluster, options, self._note_ends)
        self._changed = asyncio.Event()
        self.reset: Callable[[Sequence[Assigned]], Awaitable[None]] | None = None
        """Moves partitions whose position is out of range; None: that is an error."""

    @property
    def lane(self) -> int:
        """The lane of the fetches in the client's route."""
        return self._fetches.lane

    def stop(self) -> None:
        """Cancel fetches in flight that would otherwise be waited for."""
        self._fetches.stop()

    def look_again(self) -> None:
        """End a wait for something to read: the assignment has changed."""
        self._changed.set()

    async def fetch(self, max_wait_ms: int) -> list[Fetched]:
        """Fetch once. Returns the results for partitions that were not moved, paused or removed
        meanwhile."""
        await self._requests.find_partitions(max_age_s=self._metadata_max_age_s)
        await self._requests.find_beginnings()
        self._changed.clear()
        asked = self._assigned.wanted()
        if not asked:
            await self._wait_for_a_change(max_wait_ms)
            return []
        allowed = frozenset[int]() if self.reset is None else _OUT_OF_RANGE
        fetch = partial(self._fetches.fetch, asked, max_wait_ms, allowed=allowed)
        results = await self._requests.ask(fetch)
        found: list[Fetched] = []
        lost: list[Assigned] = []
        for key, result in results.items():
            offset, assigned = asked[key], self._assigned.get(key)
            # A partition that was moved meanwhile is read again from its new position.
            if assigned is not None and assigned.position == offset and not assigned.paused:
                if result.error_code in _OUT_OF_RANGE:
                    lost.append(assigned)
                else:
                    found.append((assigned, offset, result, entries_of(result)))
        if lost and self.reset is not None:
            await self.reset(lost)
        self._assigned.take_turns()
        self._fetch_ahead(found)
        return found

    def _fetch_ahead(self, found: list[Fetched]) -> None:
        """Start to fetch the messages after these results, if there are any."""
        nexts, more = self._assigned.wanted(), False
        for assigned, offset, result, entries in found:
            behind = nexts[assigned.key] = next_offset(result, offset, entries)
            more = more or offset < behind < result.high_watermark
        if more:
            self._fetches.ahead(nexts)

    def _note_ends(self, results: Results) -> None:
        now = self._requests.clock.monotonic()
        for key, result in results.items():
            assigned = self._assigned.get(key)
            if assigned is not None:
                assigned.note_end(now, result.high_watermark)

    async def _wait_for_a_change(self, max_wait_ms: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max_wait_ms / 1000):
                await self._changed.wait()
