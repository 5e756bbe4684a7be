"""Limits of sets, from the settings of their topic. They are requested once and cached.

The broker would refuse a set of several messages above a limit, so no such set is made. The set
must also fit after the topic has converted it to another compression or message format.
"""

import asyncio
import re
from collections.abc import Sequence
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
from ..cluster.retry import RETRIABLE
from ..cluster.route import Route
from ..responses import check

TOO_LARGE: Final = (MessageTooLarge, RecordListTooLarge)
"""Errors of a set that is too large."""

FALLBACK_BYTES: Final = 1_000_012
"""Limit in bytes if the cluster does not answer: the default of `max.message.bytes` at Kafka
brokers."""

_SIZES: Final = ("max.message.bytes", "segment.bytes", "max.decompressed.bytes")
_FORMAT: Final = "message.format.version"

_WITHOUT_NUMBERS: Final = re.compile(r"0\.(8|9|10)(\D|$)")
"""Versions of Kafka whose formats, v0 and v1, have no sequence numbers."""


class SetLimit(NamedTuple):
    """Size limit of a topic's sets that have more than one message, and their format."""

    set_bytes: int
    """Limit of the encoded set in bytes."""
    cut_bytes: int
    """Limit in bytes for the messages before encoding, counted as their lengths plus
    `RECORD_OVERHEAD`. Messages within it fit the limit of the set in any format, even if
    compression does not make them smaller."""
    has_numbers: bool = True
    """Whether the topic's format has sequence numbers, as far as it is known."""


def _limit(set_bytes: int, *, has_numbers: bool = True) -> SetLimit:
    # A record of a batch has up to 36 bytes of overhead, and 34 were counted.
    cut_bytes = max(set_bytes - BATCH_OVERHEAD - set_bytes // 16, 1)
    return SetLimit(set_bytes, cut_bytes, has_numbers)


_FALLBACK: Final = _limit(FALLBACK_BYTES)


class SetLimits:
    """Size limits of the topics that a client writes to."""

    def __init__(self, cluster: Route) -> None:
        self._cluster = cluster
        self._known: dict[str, SetLimit] = {}
        self._asking: dict[str, asyncio.Task[SetLimit]] = {}
        """Requests in flight. A second caller for a topic gets the same answer, or error."""

    def known(self, topic: str) -> SetLimit | None:
        """Return the limit if it has been requested before."""
        return self._known.get(topic)

    async def of(self, topic: str) -> SetLimit:
        """Return the limit, and request it if it is unknown. Raises retriable errors (`RETRIABLE`).
        If the client may not read the settings, or the brokers do not know the request, it is the
        default."""
        known = self._known.get(topic)
        if known is not None:
            return known
        return await self._answer(topic)

    async def refused(self, topic: str, set_bytes: int) -> None:
        """Handle the refusal of a set of `set_bytes` for its size: request the limit again. Raises
        as `of`."""
        known = self._known.get(topic)
        if known is not None and known.set_bytes < set_bytes:
            return  # the limit was updated meanwhile, or did not apply to this set
        limit = await self._answer(topic)
        if limit.set_bytes >= set_bytes:
            # The settings do not explain the refusal, or cannot be read.
            self._known[topic] = _limit(set_bytes // 2, has_numbers=limit.has_numbers)

    async def _answer(self, topic: str) -> SetLimit:
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = asyncio.create_task(self._ask(topic))
            asking.add_done_callback(partial(self._answered, topic))
        return await asyncio.shield(asking)

    def _answered(self, topic: str, asking: "asyncio.Task[SetLimit]") -> None:
        del self._asking[topic]
        if not asking.cancelled():
            asking.exception()  # marks the error as retrieved; the tasks that wait have it

    async def _ask(self, topic: str) -> SetLimit:
        settings = [*_SIZES, _FORMAT]
        resource = DescribeConfigsResource(resource_name=topic, configuration_keys=settings)
        try:
            response: DescribeConfigsResponse = await self._cluster.request_or_drop(
                DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource])
            )
            for result in response.results:
                check(result)
        except RETRIABLE:
            raise
        except UnknownTopicOrPartition:
            return _FALLBACK  # not cached: the first set may create the topic
        except CodedError:
            limit = _FALLBACK
        else:
            limit = _smallest([one for result in response.results for one in result.configs])
        self._known[topic] = limit
        return limit


def _smallest(configs: Sequence[DescribedConfig]) -> SetLimit:
    found = {one.name: one.value for one in configs if one.value}
    sizes = [int(value) for name, value in found.items() if value and name != _FORMAT]
    old = _WITHOUT_NUMBERS.match(found.get(_FORMAT) or "") is not None
    return _limit(min(sizes, default=FALLBACK_BYTES), has_numbers=not old)
