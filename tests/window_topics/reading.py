"""Reads a topic as a Kafka client does: from offset to offset, up to the high watermark."""

from horolog.protocol.api.log.list_offsets import EARLIEST, LATEST
from horolog.protocol.records.kernel import walk
from horolog.protocol.records.messages.sets import Record, records
from horolog.testing.requests import fetch, list_offsets, result
from horolog.testing.wire import Wire

LIMIT = 1 << 20
FETCHES_MAX = 3_000


async def read(
    client: Wire,
    topic: str,
    offset: int | None = None,
    *,
    version: int = 10,
    partition_max_bytes: int = LIMIT,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    isolation_level: int = 0,
    partition: int = 0,
) -> list[Record]:
    """The messages from an offset on up to the end, as which a reader takes the high watermark of
    an answer without messages; without an offset from *earliest*."""
    position = await earliest(client, topic, partition) if offset is None else offset
    found: list[Record] = []
    for _ in range(FETCHES_MAX):
        answer = result(
            await client.call(
                fetch(
                    topic,
                    (partition, position),
                    partition_max_bytes=partition_max_bytes,
                    max_wait_ms=max_wait_ms,
                    min_bytes=min_bytes,
                    isolation_level=isolation_level,
                ),
                version,
            )
        )
        assert answer.error_code == 0, answer
        data = bytes(answer.records or b"")
        whole = walk(data, 0, len(data))
        assert whole.magics.bit_count() <= 1
        if not whole.end:
            if data:
                partition_max_bytes *= 4  # as clients do where one set does not fit
            elif answer.high_watermark <= position:
                return found
            continue
        got = list(records(data[: whole.end], max_decompressed_bytes=LIMIT, from_offset=position))
        assert answer.high_watermark >= whole.last_offset + 1
        assert got, "an answer without a message"
        found += got
        position = whole.last_offset + 1
    raise AssertionError(f"{topic} has no end: at {position} after {FETCHES_MAX} fetches")


async def offset_of(
    client: Wire, topic: str, target: int, partition: int = 0, version: int = 7
) -> tuple[int, int]:
    """What list-offsets answers: an offset, and a time."""
    answer = result(await client.call(list_offsets(topic, (partition, target)), version))
    assert answer.error_code == 0, answer
    if version == 0:
        return (answer.old_style_offsets or [-1])[0], -1
    return answer.offset, answer.timestamp


async def earliest(client: Wire, topic: str, partition: int = 0) -> int:
    return (await offset_of(client, topic, EARLIEST, partition))[0]


async def latest(client: Wire, topic: str, partition: int = 0) -> int:
    return (await offset_of(client, topic, LATEST, partition))[0]
