"""Fetches from the leaders of a Kafka cluster, one at a time from each.

The brokers wait side by side, and what the first one has is given out at once. The fetches that
still wait then stay under way, and are answered in a later turn if it asks for the same.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from ...protocol.api.framing import ProtocolError
from ...protocol.api.log.fetch import FETCH, FetchPartitionResult, FetchResponse
from ...protocol.errors import (
    NO_ERROR,
    CodedError,
    LeaderNotAvailable,
    RequestTimedOut,
    UnknownTopicOrPartition,
    error_from_code,
)
from ..cluster.kafka_cluster import KafkaCluster
from ..cluster.moves import MOVED
from ..cluster.targets import PartitionLeader
from ..errors import ConnectionFailed
from ..responses import check_code
from .fetches import Arrived, Offsets, Results
from .fetching import FetchOptions, TopicPartition

_MOVED_CODES: Final = frozenset((UnknownTopicOrPartition.code, *(error.code for error in MOVED)))


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
