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
"""Next offset to read, by partition."""

Results = dict[TopicPartition, FetchPartitionResult]

Arrived = Callable[[Results], None]
"""Called with each answer when it arrives, whether or not the answer is used."""


@dataclass(slots=True)
class _UnderWay:
    """A fetch in flight at a broker."""

    offsets: Offsets
    answer: asyncio.Task[FetchResponse]


class KafkaFetches:
    """Fetches of a consumer at a Kafka cluster."""

    def __init__(self, cluster: KafkaCluster, options: FetchOptions, arrived: Arrived) -> None:
        self._cluster = cluster
        self._options = options
        self._arrived = arrived
        self._under_way: dict[int, _UnderWay] = {}

    async def fetch(self, offsets: Offsets, max_wait_ms: int) -> Results:
        """Return messages from these offsets on, for the partitions whose brokers have answered.

        Raises the errors that a broker reports for a partition. If nothing arrived because a leader
        has moved or cannot be reached, raises that error; the next call searches for the leader
        again.
        """
        shares, failure = await self._shares(offsets)
        new = self._send(shares, max_wait_ms)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max_wait_ms / 1000
        found: Results = {}
        while self._under_way:
            answers = {one.answer for one in self._under_way.values()}
            # A fetch of an earlier call may wait longer than this call allows.
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
        """Start to fetch messages that are already stored from these offsets on."""
        shares: dict[int, Offsets] = {}
        for key, offset in offsets.items():
            node_id = self._cluster.map.node_of(PartitionLeader(*key))
            if node_id is not None:
                shares.setdefault(node_id, {})[key] = offset
        for node_id, share in shares.items():
            if node_id not in self._under_way:
                self._start(node_id, share, 0)

    def stop(self) -> None:
        """Cancel fetches in flight that would otherwise be waited for."""
        for one in self._under_way.values():
            one.answer.cancel()
        self._under_way.clear()

    async def _shares(self, offsets: Offsets) -> tuple[dict[int, Offsets], Exception | None]:
        """Return the partitions by leader, and the error for partitions that have no leader."""
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
        """Send each broker its fetch and cancel fetches for other offsets. Returns the new
        fetches."""
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
            # The client is over its quota. The empty answer does not mean that there are no
            # messages, so it must not be returned.
            await asyncio.sleep(response.throttle_time_ms / 1000)

    def _take(self, node_id: int, one: _UnderWay, found: Results) -> Exception | None:
        """Add the results of a broker's answer to `found`. Returns the error of partitions without
        a result."""
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
    """Whether a result is worth returning at once: it has messages or an error."""
    return bool(result.records) or result.error_code != NO_ERROR


def _retrieve(answer: "asyncio.Task[FetchResponse]") -> None:
    """Mark the error of a fetch as retrieved, because its caller may be gone."""
    if not answer.cancelled():
        answer.exception()


class OneBrokerFetches:
    """Fetches of a consumer, one at a time, with at most one more in advance."""

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
        """Return messages from these offsets on. Raises the errors that the broker reports for a
        partition."""
        response = await self._take(offsets)
        if response is None:
            request = self._options.request(offsets, max_wait_ms)
            response = await self._cluster.request_or_drop(FETCH, request, wait_ms=max_wait_ms)
            self._arrived(_results(response))
        return {key: partition_result(response.topics, *key) for key in offsets}

    def ahead(self, offsets: Offsets) -> None:
        """Start to fetch from these offsets on, if a connection can send the request now."""
        request = self._options.request(offsets, 0)
        self._asked = offsets
        self._answer = self._cluster.submit_if_ready(FETCH, request)
        if self._answer is not None:
            self._answer.add_done_callback(self._look)

    def stop(self) -> None:
        """Do nothing: a fetch in flight ends with its connection."""

    async def _take(self, offsets: Offsets) -> FetchResponse | None:
        """Return the answer of the fetch in advance, if its offsets match; None if a new fetch is
        needed."""
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
        """Whether a fetch that waits would have returned this answer too. Errors may have passed
        meanwhile."""
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
                return True  # the broker skipped messages outside the window
        size_bytes = sum(len(result.records or b"") for result in results)
        return size_bytes >= max(self._options.min_bytes, 1)


def _results(response: FetchResponse) -> Results:
    return {
        (topic.name, result.partition): result
        for topic in response.topics
        for result in topic.partitions
    }


class Fetches(Protocol):
    """Fetches from one broker or from several."""

    async def fetch(self, offsets: Offsets, max_wait_ms: int) -> Results:
        """Return messages from these offsets on, for some or all of the partitions. Raises the
        errors that a broker reports for a partition."""
        ...

    def ahead(self, offsets: Offsets) -> None:
        """Start to fetch messages that are already stored from these offsets on."""
        ...

    def stop(self) -> None:
        """Cancel fetches in flight that would otherwise be waited for."""
        ...


def fetches_of(cluster: ClusterConnections, options: FetchOptions, arrived: Arrived) -> Fetches:
    """Return the fetches of one consumer. Raises UnsupportedVersion for options that Kafka does not
    support."""
    if isinstance(cluster, KafkaCluster):
        if options.append_times:
            raise UnsupportedVersion(
                "append_times: Kafka's protocol does not tell when a message was appended; on a "
                "topic with message.timestamp.type=LogAppendTime its own time is the append time"
            )
        return KafkaFetches(cluster, options, arrived)
    assert isinstance(cluster, OneBroker)
    return OneBrokerFetches(cluster, options, arrived)
