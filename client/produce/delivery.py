"""Taking one message set to the broker."""

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
from ..cluster.cluster import ClusterConnections
from ..cluster.retry import RETRIABLE, retry
from ..cluster.targets import PartitionLeader
from ..responses import partition_result

T = TypeVar("T")


@value_class
class AppendedSet:
    """Where a set is in the log."""

    base_offset: int
    """-1 with `acks` 0."""
    append_time_ms: int | None
    """The time that the broker stamped on all of it; None when it stamped none."""


_UNKNOWN: Final = AppendedSet(-1, None)

_APPENDED: Final = (RequestTimedOut, NotEnoughReplicasAfterAppend)
"""Answers to a set that is in the log, only not yet as durable as was asked for."""

_CLOCK_STEP_S: Final = 0.001
"""uvloop's clock and its timers. When the set in front has just timed out, the clock shows the end
of the time or, as a float, a bit less."""


class Delivery:
    """The one way of messages to the broker."""

    def __init__(
        self, cluster: ClusterConnections, *, ack_timeout_ms: int, delivery_timeout_ms: int
    ) -> None:
        self._cluster = cluster
        self._ack_timeout_ms = ack_timeout_ms
        self._delivery_timeout_ms = delivery_timeout_ms

    async def once(self, topic: str, partition: int, records: Buffer, acks: int) -> AppendedSet:
        """Send a set once, to a broker that is found within the delivery timeout. Raises what the
        broker reports of it."""
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
        """Send a set again and again, until it is answered or `delivery_timeout_ms` after `since`,
        a time of the loop's clock.

        When an answer got lost the set is appended twice, unless the broker recognises it
        (`recognised`). When its turn comes too late, it is not sent at all. Without a delivery
        timeout (0) it is sent once.
        """
        until = self._until(since)
        if until is not None and until - asyncio.get_running_loop().time() < _CLOCK_STEP_S / 2:
            raise RequestTimedOut(
                f"not sent: delivery_timeout_ms={self._delivery_timeout_ms} was over before the "
                "messages in front of it were answered"
            )
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

    async def retry(self, attempt: Callable[[], Awaitable[T]], *, since: float | None = None) -> T:
        """Do something that has to be done before a set can be sent, as often as it takes, and no
        longer than for a set of `since`, or of now."""
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
        """Do something once, which ends after the delivery timeout: also while no broker leads."""
        return await retry(
            attempt,
            timeout_ms=self._delivery_timeout_ms,
            setting="delivery_timeout_ms",
            until=self._until(None),
            retriable=(),
            failure=self._failure,
        )

    def _until(self, since: float | None) -> float | None:
        """When the time of a set of `since`, or of now, is over, if that is bounded."""
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
            # To send it again would double it.
            return error

    async def _send_recognised(self, request: ProduceRequest) -> AppendedSet:
        try:
            return self._appended(await self._exchange(request, repeat=True), request)
        except DuplicateSequenceNumber:
            return _UNKNOWN  # it is in the log, and the broker does not remember where

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
        """The response; None where there is none, with `acks` 0."""
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
        return AppendedSet(result.base_offset, None if append_ms == NO_TIMESTAMP else append_ms)
