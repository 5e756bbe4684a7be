"""What a consumer asks for messages, by what it is connected to.

From a Horolog broker the next fetch is under way while an application works on the messages of the
last one. Only what is there already is asked for ahead, so that it never keeps a later question
waiting; and what comes is only used by a call that would ask the same then. So it changes nothing
but the time it takes.

From the leaders of a Kafka cluster there is one fetch at a time from each. The brokers wait side by
side, and what the first one has is given out at once. The fetches that still wait then stay under
way, and are answered in a later turn if it asks for the same.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ...protocol.api.framing import ProtocolError
from ...protocol.api.log.fetch import FETCH, FetchPartitionResult, FetchResponse
from ...protocol.errors import (
    NO_ERROR,
    CodedError,
    LeaderNotAvailable,
    RequestTimedOut,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_from_code,
)
from ..cluster.cluster import ClusterConnections
from ..cluster.kafka_cluster import KafkaCluster
from ..cluster.serving import MOVED
from ..cluster.several_brokers import OneBroker
from ..cluster.targets import PartitionLeader
from ..errors import ConnectionFailed
from ..responses import check_code, partition_result
from .fetching import FetchOptions, TopicPartition

_MOVED_CODES: Final = frozenset((UnknownTopicOrPartition.code, *(error.code for error in MOVED)))

Offsets = dict[TopicPartition, int]
"""Where to read on."""

Results = dict[TopicPartition, FetchPartitionResult]

Arrived = Callable[[Results], None]
"""Called with every answer when it comes, used or not."""


@dataclass(slots=True)
class _UnderWay:
    """A fetch that was sent to a broker."""

    offsets: Offsets
    answer: asyncio.Task[FetchResponse]


class KafkaFetches:
    """The fetches of a consumer."""

    def __init__(self, cluster: KafkaCluster, options: FetchOptions, arrived: Arrived) -> None:
        self._cluster = cluster
        self._options = options
        self._arrived = arrived
        self._under_way: dict[int, _UnderWay] = {}

    async def fetch(self, offsets: Offsets, max_wait_ms: int) -> Results:
        """What there is from these offsets on, of the partitions whose brokers have answered.

        Raises what a broker reports of a partition. When nothing came, and a leader has moved or
        cannot be reached, raises that: it is looked for again at the next call.
        """
        shares, failure = await self._shares(offsets)
        new = self._send(shares, max_wait_ms)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max_wait_ms / 1000
        found: Results = {}
        while self._under_way:
            answers = {one.answer for one in self._under_way.values()}
            # What an earlier turn asked for may wait longer than this turn does.
            left_s = None if answers & new else max(deadline - loop.time(), 0)
            done, _ = await asyncio.wait(
                answers, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
            for node_id, one in list(self._under_way.items()):
                if one.answer in done:
                    del self._under_way[node_id]
                    failure = self._take(node_id, one, found) or failure
            if failure is not None or not done or any(map(_has_news, found.values())):
                break
        if failure is not None and not any(map(_has_news, found.values())):
            raise failure
        for result in found.values():
            check_code(result.error_code)
        return found

    def ahead(self, offsets: Offsets) -> None:
        """Begin to fetch from these offsets on, what is there already."""
        shares: dict[int, Offsets] = {}
        for key, offset in offsets.items():
            node_id = self._cluster.map.node_of(PartitionLeader(*key))
            if node_id is not None:
                shares.setdefault(node_id, {})[key] = offset
        for node_id, share in shares.items():
            if node_id not in self._under_way:
                self._start(node_id, share, 0)

    def stop(self) -> None:
        """Wait for nothing any more."""
        for one in self._under_way.values():
            one.answer.cancel()
        self._under_way.clear()

    async def _shares(self, offsets: Offsets) -> tuple[dict[int, Offsets], Exception | None]:
        """The partitions of each broker; and what keeps some of them from being fetched."""
        shares: dict[int, Offsets] = {}
        failure: Exception | None = None
        for key, offset in offsets.items():
            try:
                node_id = await self._cluster.leader(*key)
            except LeaderNotAvailable as error:
                failure = error
            else:
                shares.setdefault(node_id, {})[key] = offset
        return shares, failure

    def _send(
        self, shares: dict[int, Offsets], max_wait_ms: int
    ) -> "set[asyncio.Task[FetchResponse]]":
        """Have every broker asked for its share, and no other; the fetches that are new."""
        for node_id, one in list(self._under_way.items()):
            if shares.get(node_id) != one.offsets:
                one.answer.cancel()
                del self._under_way[node_id]
        return {
            self._start(node_id, share, max_wait_ms)
            for node_id, share in shares.items()
            if node_id not in self._under_way
        }

    def _start(
        self, node_id: int, share: Offsets, max_wait_ms: int
    ) -> "asyncio.Task[FetchResponse]":
        answer = asyncio.create_task(self._exchange(node_id, share, max_wait_ms))
        answer.add_done_callback(_retrieve)
        self._under_way[node_id] = _UnderWay(share, answer)
        return answer

    async def _exchange(self, node_id: int, share: Offsets, max_wait_ms: int) -> FetchResponse:
        while True:
            connection = await self._cluster.fetch_connection(node_id)
            request = self._options.request(share, max_wait_ms)
            try:
                response: FetchResponse = await connection.submit(
                    FETCH, request, wait_ms=max_wait_ms
                )
            except RequestTimedOut:
                connection.abort("it had stopped answering")
                raise
            check_code(response.error_code)
            if response.topics or not response.throttle_time_ms:
                return response
            # It was over the client's quota. That nothing is in it does not say that nothing is
            # there, which is what an answer without messages is taken for.
            await asyncio.sleep(response.throttle_time_ms / 1000)

    def _take(self, node_id: int, one: _UnderWay, found: Results) -> Exception | None:
        """Put what a broker answered to `found`; the error that keeps from having all of it."""
        try:
            response = one.answer.result()
        except (ConnectionFailed, RequestTimedOut) as error:
            self._cluster.map.forget_node(node_id)
            return error
        failure: CodedError | None = None
        answered: Results = {}
        for key in one.offsets:
            result = _result(response, key)
            if result.error_code in _MOVED_CODES:
                self._cluster.map.forget(PartitionLeader(*key))
                failure = LeaderNotAvailable(
                    f"broker {node_id} does not lead {key[0]}-{key[1]} any more: "
                    f"{error_from_code(result.error_code).name}"
                )
            else:
                answered[key] = result
        self._arrived(answered)
        found.update(answered)
        return failure


def _result(response: FetchResponse, key: TopicPartition) -> FetchPartitionResult:
    for topic in response.topics:
        if topic.name == key[0]:
            for result in topic.partitions:
                if result.partition == key[1]:
                    return result
    raise ProtocolError(f"a response without {key[0]}-{key[1]}, which was asked for")


def _has_news(result: FetchPartitionResult) -> bool:
    """Whether it is worth giving out at once."""
    return bool(result.records) or result.error_code != NO_ERROR


def _retrieve(answer: "asyncio.Task[FetchResponse]") -> None:
    """The error of a fetch that no caller waits for any more is dropped."""
    if not answer.cancelled():
        answer.exception()


class OneBrokerFetches:
    """The fetches of a consumer, one at a time, and at most one more asked for before its time."""

    def __init__(
        self,
        cluster: OneBroker,
        options: FetchOptions,
        arrived: Arrived,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._arrived = arrived
        self._asked: Offsets = {}
        self._answer: asyncio.Future[FetchResponse] | None = None

    async def fetch(self, offsets: Offsets, max_wait_ms: int) -> Results:
        """What there is from these offsets on. Raises what the broker reports of a partition."""
        response = await self._take(offsets)
        if response is None:
            request = self._options.request(offsets, max_wait_ms)
            response = await self._cluster.request_or_drop(FETCH, request, wait_ms=max_wait_ms)
            self._arrived(_results(response))
        return {key: partition_result(response.topics, *key) for key in offsets}

    def ahead(self, offsets: Offsets) -> None:
        """Fetch from these offsets on, if there is a connection that takes it now."""
        request = self._options.request(offsets, 0)
        self._asked = offsets
        self._answer = self._cluster.submit_if_ready(FETCH, request)
        if self._answer is not None:
            self._answer.add_done_callback(self._look)

    def stop(self) -> None:
        """Nothing to do: what is under way ends with the connection."""

    async def _take(self, offsets: Offsets) -> FetchResponse | None:
        """The answer, if this is what was asked for. None: it is to be asked for now."""
        answer = self._answer
        if answer is not None and self._asked == offsets:
            await asyncio.wait((answer,))
        self._answer = None
        if answer is None or self._asked != offsets or answer.exception() is not None:
            return None
        response = answer.result()
        return response if self._is_enough(response) else None

    def _look(self, answer: "asyncio.Future[FetchResponse]") -> None:
        if answer.exception() is None:
            self._arrived(_results(answer.result()))

    def _is_enough(self, response: FetchResponse) -> bool:
        """Whether a fetch that waits would have ended with this too. Errors may be over by now."""
        results = [result for topic in response.topics for result in topic.partitions]
        if any(result.error_code != NO_ERROR for result in results):
            return False
        if self._options.window is not None:
            passed = (
                result.next_offset > self._asked.get((topic.name, result.partition), 0)
                for topic in response.topics
                for result in topic.partitions
            )
            if any(passed):
                return True  # what holds nothing of the window was passed over
        size_bytes = sum(len(result.records or b"") for result in results)
        return size_bytes >= max(self._options.min_bytes, 1)


def _results(response: FetchResponse) -> Results:
    return {
        (topic.name, result.partition): result
        for topic in response.topics
        for result in topic.partitions
    }


class Fetches(Protocol):
    """The broker or brokers, as far as fetches go."""

    async def fetch(self, offsets: Offsets, max_wait_ms: int) -> Results:
        """What there is from these offsets on, of some of the partitions or all. Raises what a
        broker reports of a partition."""
        ...

    def ahead(self, offsets: Offsets) -> None:
        """Begin to fetch from these offsets on, where there is more."""
        ...

    def stop(self) -> None:
        """Wait for nothing any more."""
        ...


def fetches_of(cluster: ClusterConnections, options: FetchOptions, arrived: Arrived) -> Fetches:
    """The fetches of one consumer. Raises UnsupportedVersion for what Kafka has not."""
    if isinstance(cluster, KafkaCluster):
        if options.append_times:
            raise UnsupportedVersion(
                "append_times: Kafka's protocol does not tell when a message was appended; on a "
                "topic with message.timestamp.type=LogAppendTime its own time is the append time"
            )
        return KafkaFetches(cluster, options, arrived)
    assert isinstance(cluster, OneBroker)
    return OneBrokerFetches(cluster, options, arrived)
