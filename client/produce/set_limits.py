"""How large a set may be: what its topic's settings allow, asked for once and kept.

A set of several messages that takes more than one of the limits would be refused, so it is not
made. Whatever the topic makes of it (other compression, another message format) has to fit too.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from ...protocol.api.topics.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribedConfig,
)
from ...protocol.errors import (
    CodedError,
    MessageTooLarge,
    RecordListTooLarge,
    UnknownTopicOrPartition,
)
from ...protocol.records.layout import BATCH_OVERHEAD
from ..cluster.cluster import ClusterConnections
from ..cluster.retry import RETRIABLE
from ..responses import check

TOO_LARGE: Final = (MessageTooLarge, RecordListTooLarge)
"""Refusals of a set for its size."""

FALLBACK_BYTES: Final = 1_000_012
"""The limit where a cluster does not say: its brokers' default of `max.message.bytes`."""

_SETTINGS: Final = ("max.message.bytes", "segment.bytes", "max.decompressed.bytes")


class SetLimit(NamedTuple):
    """How large the sets of a topic may be that have more than one message."""

    set_bytes: int
    """Of a set as it is sent."""
    cut_bytes: int
    """Of its messages as `RECORD_OVERHEAD` and the lengths count them, before the set is made:
    what they can take in any format, and compressed to no avail, is within the limit."""


def _limit(set_bytes: int) -> SetLimit:
    # A record of a batch has up to 36 bytes of its own, where 34 were counted.
    return SetLimit(set_bytes, max(set_bytes - BATCH_OVERHEAD - set_bytes // 16, 1))


_FALLBACK: Final = _limit(FALLBACK_BYTES)


class SetLimits:
    """The limits of the topics that a client writes to."""

    def __init__(self, cluster: ClusterConnections) -> None:
        self._cluster = cluster
        self._known: dict[str, SetLimit] = {}
        self._asking: dict[str, asyncio.Task[SetLimit]] = {}
        """Requests under way. A second caller for the topic gets the same answer, or error."""

    def known(self, topic: str) -> SetLimit | None:
        """The limit, if it has been asked for."""
        return self._known.get(topic)

    async def of(self, topic: str) -> SetLimit:
        """The limit. Raises errors that may pass (`RETRIABLE`); where the question is denied, or
        the brokers know no such question, it is the usual one."""
        known = self._known.get(topic)
        if known is not None:
            return known
        return await self._answer(topic)

    async def refused(self, topic: str, set_bytes: int) -> None:
        """The broker refused a set of so many bytes for its size: ask again. Raises as `of`."""
        known = self._known.get(topic)
        if known is not None and known.set_bytes < set_bytes:
            return  # another set has been refused meanwhile, or this one was not cut by it
        limit = await self._answer(topic)
        if limit.set_bytes >= set_bytes:
            # The settings do not say why, or are not to be had.
            self._known[topic] = _limit(set_bytes // 2)

    async def _answer(self, topic: str) -> SetLimit:
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = asyncio.create_task(self._ask(topic))
            asking.add_done_callback(partial(self._answered, topic))
        return await asyncio.shield(asking)

    def _answered(self, topic: str, asking: "asyncio.Task[SetLimit]") -> None:
        del self._asking[topic]
        if not asking.cancelled():
            asking.exception()  # tasks that still wait for it have it

    async def _ask(self, topic: str) -> SetLimit:
        resource = DescribeConfigsResource(resource_name=topic, configuration_keys=list(_SETTINGS))
        try:
            response: DescribeConfigsResponse = await self._cluster.request_or_drop(
                DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource])
            )
            for result in response.results:
                check(result)
        except RETRIABLE:
            raise
        except UnknownTopicOrPartition:
            return _FALLBACK  # its first set may make it
        except CodedError:
            limit = _FALLBACK
        else:
            limit = _smallest(one for result in response.results for one in result.configs)
        self._known[topic] = limit
        return limit


def _smallest(configs: Iterable[DescribedConfig]) -> SetLimit:
    values = (one.value for one in configs)
    return _limit(min((int(value) for value in values if value), default=FALLBACK_BYTES))
