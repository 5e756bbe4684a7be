"""Delivery of one message set to the leader of its partition."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from ...protocol.api.log.produce import (
    PRODUCE,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from ...protocol.errors import (
    DuplicateSequenceNumber,
    NotEnoughReplicasAfterAppend,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from ...protocol.records.layout import NO_TIMESTAMP, Buffer
from ...values import value_class
from ..cluster.retry import RETRIABLE, retry
from ..cluster.route import Route
from ..cluster.targets import PartitionLeader
from ..responses import partition_result

T = TypeVar("T")


@value_class
class AppendedSet:
    """Position of an appended set in the log."""

    base_offset: int
    """Offset of the first message; -1 if unknown: with `acks` 0, or for a duplicate whose offset
    the broker no longer knows."""
    append_time_ms: int | None
    """Append time of the whole set; None if the broker assigned none."""
    expired_before_ms: int = NO_TIMESTAMP
    """Messages with an earlier time were past retention when they were appended; -1 if none was."""


_UNKNOWN: Final = AppendedSet(-1, None)

_APPENDED: Final = (RequestTimedOut, NotEnoughReplicasAfterAppend)
"""Errors of a set that was appended, but is not yet as durable as requested."""

_CLOCK_STEP_S: Final = 0.001
"""Resolution of uvloop's clock and timers. Just after the previous set timed out, the clock shows
the deadline or, because of float rounding, slightly less."""


class Delivery:
    """Sends sets to partition leaders, within the delivery timeout."""

    def __init__(self, cluster: Route, *, ack_timeout_ms: int, delivery_timeout_ms: int) -> None:
        self._cluster = cluster
        self._ack_timeout_ms = ack_timeout_ms
        self._delivery_timeout_ms = delivery_timeout_ms

    async def once(self, topic: str, partition: int, records: Buffer, acks: int) -> AppendedSet:
        """Send a set once. The leader is searched for within the delivery timeout. Raises the
        errors that the broker reports for the set."""
        request = self._request(topic, partition, records, acks)
        send = partial(self._exchange, request, repeat=False)
        return self._appended(await self.bounded(send), request)

    async def until_answered(
        self,
        topic: str,
        partition: int,
        records: Buffer,
        acks: int,
        *,
        since: float,
        recognised: bool = False,
    ) -> AppendedSet:
        """Send a set until the broker answers, or until `delivery_timeout_ms` after `since`, a time
        of the event loop's clock.

        When only an answer was lost, the set is appended twice, unless the broker recognises
        duplicates (`recognised`). A set whose turn comes after the deadline is not sent. Without a
        delivery timeout (0) a set is sent once.
        """
        until = self.check_time(since)
        request = self._request(topic, partition, records, acks)
        if recognised:
            return await retry(
                partial(self._send_recognised, request),
                timeout_ms=self._delivery_timeout_ms,
                setting="delivery_timeout_ms",
                until=until,
                retriable=(*RETRIABLE, NotEnoughReplicasAfterAppend),
                failure=self._failure,
            )
        result = await retry(
            partial(self._send_or_time_out, request),
            timeout_ms=self._delivery_timeout_ms,
            setting="delivery_timeout_ms",
            until=until,
            retriable=RETRIABLE,
            failure=self._failure,
        )
        if isinstance(result, Exception):
            raise result
        return result

    def check_time(self, since: float) -> float | None:
        """Return the deadline of a set that started at `since`; None without a delivery timeout.
        Raises RequestTimedOut if it is over."""
        until = self._until(since)
        if until is not None and until - asyncio.get_running_loop().time() < _CLOCK_STEP_S / 2:
            raise RequestTimedOut(
                f"not sent: delivery_timeout_ms={self._delivery_timeout_ms} was over before the "
                "messages in front of it were answered"
            )
        return until

    async def retry(self, attempt: Callable[[], Awaitable[T]], *, since: float | None = None) -> T:
        """Repeat a step that must precede sending, until it succeeds or the delivery timeout after
        `since` is over. `since` is the start time of a set on the event loop's clock; None means
        now."""
        return await retry(
            attempt,
            timeout_ms=self._delivery_timeout_ms,
            setting="delivery_timeout_ms",
            until=self._until(since),
            retriable=RETRIABLE,
            failure=self._failure,
            unanswered="so nothing was sent",
        )

    async def bounded(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Run a step once. The step fails when the delivery timeout is over, even while the
        partition has no leader."""
        return await retry(
            attempt,
            timeout_ms=self._delivery_timeout_ms,
            setting="delivery_timeout_ms",
            until=self._until(None),
            retriable=(),
            failure=self._failure,
        )

    def _until(self, since: float | None) -> float | None:
        """Return the deadline of a set that started at `since` (None: now), on the event loop's
        clock; None without a delivery timeout."""
        if not self._delivery_timeout_ms:
            return None
        if since is None:
            since = asyncio.get_running_loop().time()
        return since + self._delivery_timeout_ms / 1000

    def _failure(self) -> Exception | None:
        return self._cluster.failure

    async def _send_or_time_out(self, request: ProduceRequest) -> AppendedSet | Exception:
        response = await self._exchange(request, repeat=True)
        try:
            return self._appended(response, request)
        except _APPENDED as error:
            # Sending the set again would duplicate it.
            return error

    async def _send_recognised(self, request: ProduceRequest) -> AppendedSet:
        try:
            return self._appended(await self._exchange(request, repeat=True), request)
        except DuplicateSequenceNumber:
            return _UNKNOWN  # already appended, but the broker no longer knows the offset

    def _request(self, topic: str, partition: int, records: Buffer, acks: int) -> ProduceRequest:
        return ProduceRequest(
            acks=acks,
            timeout_ms=self._ack_timeout_ms,
            topics=[
                ProduceTopic(
                    name=topic,
                    partitions=[ProducePartition(partition=partition, records=records)],
                )
            ],
        )

    async def _exchange(self, request: ProduceRequest, *, repeat: bool) -> ProduceResponse | None:
        """Send the request and return the response; None with `acks` 0, which has no response."""
        (sent,) = request.topics
        leader = PartitionLeader(sent.name, sent.partitions[0].partition, create=True)
        if request.acks == 0:
            await self._cluster.send_unanswered(PRODUCE, request, to=leader)
            return None
        send = self._cluster.request_or_drop if repeat else self._cluster.request_once
        wait_ms = self._ack_timeout_ms if request.acks == -1 else 0
        response: ProduceResponse = await send(PRODUCE, request, to=leader, wait_ms=wait_ms)
        return response

    def _appended(self, response: ProduceResponse | None, request: ProduceRequest) -> AppendedSet:
        if response is None:
            return _UNKNOWN
        (sent,) = request.topics
        try:
            result = partition_result(response.topics, sent.name, sent.partitions[0].partition)
        except UnknownTopicOrPartition:
            self._cluster.forget(sent.name)
            raise
        append_ms = result.log_append_time_ms
        return AppendedSet(
            result.base_offset,
            None if append_ms == NO_TIMESTAMP else append_ms,
            result.expired_before_ms,
        )
