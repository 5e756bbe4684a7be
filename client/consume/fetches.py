"""Fetches of one reader: partitions grouped by the node that serves them, one fetch at a time from
each node.

The nodes wait side by side, and what the first one has is returned at once. The fetches that still
wait then stay under way, and are answered in a later call if it asks for the same offsets.

The next fetch is sent in advance while an application works on the messages of the last one. Only
messages that are already stored are fetched in advance, so that no later request has to wait, and
an answer is used only by a call that asks for the same offsets.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...protocol.api.framing import ProtocolError
from ...protocol.api.log.fetch import FetchPartitionResult, FetchResponse
from ...protocol.errors import (
    NO_ERROR,
    LeaderNotAvailable,
    RequestTimedOut,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_from_code,
)
from ..cluster.retry import MOVED
from ..cluster.route import Route
from ..cluster.targets import PartitionLeader
from ..errors import ClientClosed, ConnectionFailed
from ..responses import check_code, check_of
from .fetching import FetchOptions, TopicPartition

_MOVED_CODES: Final = frozenset((UnknownTopicOrPartition.code, *(error.code for error in MOVED)))

Offsets = dict[TopicPartition, int]
"""Next offset to read, by partition."""

Results = dict[TopicPartition, FetchPartitionResult]

Arrived = Callable[[Results], None]
"""Called with each answer when it arrives, whether or not the answer is used."""


@dataclass(slots=True)
class _UnderWay:
    """A fetch in flight at a node."""

    offsets: Offsets
    answer: asyncio.Future[FetchResponse]
    in_advance: bool


class Fetches:
    """Fetches of one reader."""

    def __init__(self, route: Route, options: FetchOptions, arrived: Arrived) -> None:
        """Raises UnsupportedVersion for options that Kafka does not support."""
        if route.kafka and options.append_times:
            raise UnsupportedVersion(
                "append_times: Kafka's protocol does not tell when a message was appended; on a "
                "topic with message.timestamp.type=LogAppendTime its own time is the append time"
            )
        self._route = route
        self.lane = route.new_lane()
        self._options = options
        self._arrived = arrived
        # Over the native protocol the route itself follows the leader of all partitions.
        self._moved_codes = _MOVED_CODES if route.kafka else frozenset[int]()
        self._under_way: dict[int, _UnderWay] = {}
        self._stopped = False

    async def fetch(
        self, offsets: Offsets, max_wait_ms: int, *, allowed: frozenset[int] = frozenset()
    ) -> Results:
        """Return messages from these offsets on, for the partitions whose nodes have answered.

        Raises the errors that a broker reports for a partition, unless their codes are `allowed` in
        results. If nothing arrived because a leader
        has moved or cannot be reached, raises that error; the next call searches for the leader
        again. Raises ClientClosed after `stop`.
        """
        self._check_open()
        shares, failure = await self._shares(offsets)
        self._check_open()
        self._drop_others(shares)
        found: Results = {}
        if not self._route.kafka:
            ((node_id, share),) = shares.items()
            # One node needs no task.
            answer = await self._answer(node_id, share, max_wait_ms)
            failure = self._read(node_id, share, answer, found)
        else:
            failure = await self._first_news(shares, max_wait_ms, found) or failure
        self._check_open()
        if failure is not None and not any(map(_has_news, found.values())):
            raise failure
        for (topic, partition), result in found.items():
            if result.error_code not in allowed:
                check_of(result, topic, partition)
        return found

    def ahead(self, offsets: Offsets) -> None:
        """Start to fetch messages that are already stored from these offsets on, where a connection
        can send the request now."""
        shares, _ = self._route.map.by_node(offsets)
        for node_id, share in shares.items():
            before = self._under_way.get(node_id)
            if before is not None and not before.in_advance:
                continue
            request = self._options.request(share, 0)
            answer = self._route.fetch_if_ready(node_id, request, lane=self.lane)
            if answer is None:
                self._under_way.pop(node_id, None)
                continue
            self._under_way[node_id] = _UnderWay(share, answer, in_advance=True)
            answer.add_done_callback(self._note)

    def stop(self) -> None:
        """End: cancel fetches in flight that would otherwise be waited for."""
        self._stopped = True
        for one in self._under_way.values():
            if not one.in_advance:
                one.answer.cancel()
        self._under_way.clear()

    async def close(self) -> None:
        """Stop, and close the connections."""
        self.stop()
        await self._route.close_lane(self.lane)

    def _check_open(self) -> None:
        if self._stopped:
            raise ClientClosed(f"the reader of {self._route.address} is closed")

    async def _shares(self, offsets: Offsets) -> tuple[dict[int, Offsets], Exception | None]:
        """Return the partitions by node, and the error for partitions that have no leader."""
        shares, unknown = self._route.map.by_node(offsets)
        failure: Exception | None = None
        for key in unknown:
            try:
                node_id = await self._route.leader(*key)
            except LeaderNotAvailable as error:
                failure = error
            else:
                shares.setdefault(node_id, {})[key] = offsets[key]
        return shares, failure

    def _drop_others(self, shares: dict[int, Offsets]) -> None:
        """Drop fetches in flight for other offsets."""
        for node_id, one in list(self._under_way.items()):
            if shares.get(node_id) != one.offsets:
                if not one.in_advance:
                    one.answer.cancel()
                del self._under_way[node_id]

    def _is_enough(self, one: _UnderWay) -> bool:
        """Whether a fetch that waits would have returned the answer of this one, which did not.
        Errors may have passed meanwhile."""
        if one.answer.cancelled() or one.answer.exception() is not None:
            return False
        results = _results(one.answer.result())
        if any(result.error_code != NO_ERROR for result in results.values()):
            return False
        if self._options.window is not None and any(
            result.next_offset > one.offsets.get(key, 0) for key, result in results.items()
        ):
            return True  # the broker skipped messages outside the window
        size_bytes = sum(len(result.records or b"") for result in results.values())
        return size_bytes >= max(self._options.min_bytes, 1)

    async def _first_news(
        self, shares: dict[int, Offsets], max_wait_ms: int, found: Results
    ) -> Exception | None:
        """Send each node its fetch and wait for messages or errors of one of them. Returns the
        error of partitions without a result."""
        failure: Exception | None = None
        new = {
            self._start(node_id, share, max_wait_ms)
            for node_id, share in shares.items()
            if node_id not in self._under_way
        }
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max_wait_ms / 1000
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
                    if one.in_advance and not self._is_enough(one):
                        new.add(self._start(node_id, one.offsets, max_wait_ms))
                    else:
                        failure = self._take(node_id, one, found) or failure
            if failure is not None or not done or any(map(_has_news, found.values())):
                break
        return failure

    def _start(
        self, node_id: int, share: Offsets, max_wait_ms: int
    ) -> "asyncio.Future[FetchResponse]":
        answer = asyncio.create_task(self._request(node_id, share, max_wait_ms))
        answer.add_done_callback(_retrieve)
        self._under_way[node_id] = _UnderWay(share, answer, in_advance=False)
        return answer

    async def _answer(
        self, node_id: int, share: Offsets, max_wait_ms: int
    ) -> "FetchResponse | Exception":
        """Return the answer of a node, or the error of one that cannot be reached."""
        one = self._under_way.get(node_id)
        if one is not None:
            await asyncio.wait((one.answer,))
            self._under_way.pop(node_id, None)
            if self._is_enough(one):
                return one.answer.result()
        try:
            return await self._request(node_id, share, max_wait_ms)
        except (ConnectionFailed, RequestTimedOut) as error:
            return error

    async def _request(self, node_id: int, share: Offsets, max_wait_ms: int) -> FetchResponse:
        while True:
            self._check_open()  # a new request would open a connection again
            request = self._options.request(share, max_wait_ms)
            response = await self._route.fetch(
                node_id, request, wait_ms=max_wait_ms, lane=self.lane
            )
            check_code(response.error_code)
            if response.topics or not response.throttle_time_ms:
                self._arrived(_sound(response))
                return response
            # The client is over its quota. The empty answer does not mean that there are no
            # messages, so it must not be returned.
            await asyncio.sleep(response.throttle_time_ms / 1000)

    def _take(self, node_id: int, one: _UnderWay, found: Results) -> Exception | None:
        answer: FetchResponse | Exception
        try:
            answer = one.answer.result()
        except (ConnectionFailed, RequestTimedOut) as error:
            answer = error
        return self._read(node_id, one.offsets, answer, found)

    def _read(
        self,
        node_id: int,
        offsets: Offsets,
        answer: "FetchResponse | Exception",
        found: Results,
    ) -> Exception | None:
        """Add the results of a node's answer to `found`. Returns the error of partitions without a
        result."""
        if isinstance(answer, Exception):
            self._route.map.forget_node(node_id)
            return answer
        failure: Exception | None = None
        answered = _results(answer)
        for key in offsets:
            result = answered.get(key)
            if result is None:
                raise ProtocolError(f"a response without {key[0]}-{key[1]}, which was asked for")
            if result.error_code in self._moved_codes:
                self._route.map.forget(PartitionLeader(*key))
                failure = LeaderNotAvailable(
                    f"broker {node_id} does not lead {key[0]}-{key[1]} any more: "
                    f"{error_from_code(result.error_code).name}"
                )
            else:
                found[key] = result
        return failure

    def _note(self, answer: "asyncio.Future[FetchResponse]") -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._arrived(_sound(answer.result()))


def _results(response: FetchResponse) -> Results:
    return {
        (topic.name, result.partition): result
        for topic in response.topics
        for result in topic.partitions
    }


def _sound(response: FetchResponse) -> Results:
    return {
        key: result for key, result in _results(response).items() if result.error_code == NO_ERROR
    }


def _has_news(result: FetchPartitionResult) -> bool:
    """Whether a result is worth returning at once: it has messages or an error."""
    return bool(result.records) or result.error_code != NO_ERROR


def _retrieve(answer: "asyncio.Future[FetchResponse]") -> None:
    """Mark the error of a fetch as retrieved, because its caller may be gone."""
    if not answer.cancelled():
        answer.exception()
