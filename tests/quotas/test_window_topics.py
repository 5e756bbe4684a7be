"""Bytes of a window count as those of the topic whose messages they are."""

from horolog.testing.requests import fetch, message_set, produce

from .conftest import Serving, connection, set_quota
from .test_enforcement import WIRE

AT_14 = 1_479_132_000_000
WINDOW = "t..20161114T14Z..1h"


async def test_a_reader_of_a_window_is_throttled(serving: Serving) -> None:
    async with serving(retention_ms=-1) as broker, connection(broker) as client:
        await client.call(produce("t", message_set(AT_14 - 1, *[AT_14] * 50)))
        await set_quota(client, WIRE, consumer_byte_rate=10)
        answer = await client.call(fetch(WINDOW, (0, 0)))
        assert len(answer.topics[0].partitions[0].records) > 0
        over = await client.call(fetch(WINDOW, (0, 0)))
        assert max(answer.throttle_time_ms, over.throttle_time_ms) > 0
