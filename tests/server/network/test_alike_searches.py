"""Searches by time that come together find what each would have found alone."""

import asyncio
from random import Random
from typing import Any

import pytest

from horolog.protocol.api.log.fetch import FETCH
from horolog.protocol.api.log.list_offsets import LIST_OFFSETS
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.schema import Api
from horolog.protocol.errors import InvalidTopic, UnknownTopicOrPartition
from horolog.protocol.records.batch import build_batch
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord
from horolog.server.broker import Broker
from horolog.server.dispatch import Dispatcher
from horolog.server.handlers import HANDLERS
from horolog.server.requests import PendingAnswer
from horolog.storage.read import reader, search
from horolog.storage.segment.segment import Segment
from horolog.testing.clock import ManualClock
from horolog.testing.requests import (
    create_topic,
    fetch,
    list_offsets,
    message_set,
    produce,
    result,
)
from horolog.testing.wire import Wire

from .alike import BOTH, answers_to, frame_of

NOW = ManualClock().now_ms()


async def all_answers(dispatcher: Dispatcher, frames: list[bytes]) -> list[bytes]:
    """The answers to requests that came together, when all are made."""
    made = []
    for answer in answers_to(dispatcher, frames):
        while isinstance(answer, PendingAnswer):
            assert isinstance(answer.ready, asyncio.Future)
            await answer.ready
            answer = answer.make()
        assert isinstance(answer, bytes)
        made.append(answer)
    return made


@BOTH
@pytest.mark.parametrize("replica_id", [-1, 0])
async def test_searches_find_what_each_finds_alone(
    broker: Broker, client: Wire, encoding: Any, replica_id: int
) -> None:
    """For times out of order, in sets of all kinds, in several segments."""
    await client.call(create_topic("a", segment_bytes=4000, retention_ms=-1))
    random = Random(7)
    for number in range(60):
        times = [NOW + random.randrange(-500, 500) + 50 * number for _ in range(number % 9 + 1)]
        codec = (Codec.NONE, Codec.GZIP)[number % 3 == 2]
        sent = message_set(*times, codec=codec)
        if number % 4 == 3:
            records = [NewRecord(b"v", timestamp_ms=ms) for ms in times]
            sent = bytes(build_batch(records, codec=codec))
        await client.call(produce("a", sent))
    dispatcher = Dispatcher(broker.services, HANDLERS, encoding)
    for version in LIST_OFFSETS.versions(native=encoding.NATIVE):
        targets = [-4, -3, -2, -1, 0, NOW, NOW + 10_000]
        targets += [NOW + random.randrange(-600, 4000) for _ in range(60)]
        frames = [
            frame_of(
                encoding, version, list_offsets("a", (0, target), replica_id=replica_id), number
            )
            for number, target in enumerate(targets)
        ]
        found = await all_answers(dispatcher, frames)
        assert found == [(await all_answers(dispatcher, [frame]))[0] for frame in frames]


async def test_searches_see_what_was_appended_and_are_counted(broker: Broker, client: Wire) -> None:
    for number in range(5):
        await client.call(produce("a", message_set(NOW + number)))
        for target, offset in ((NOW + number, number), (NOW + number + 1, -1)):
            found = result(await client.call(list_offsets("a", (0, target))))
            assert found.offset == offset
    assert broker.figures.requests["list-offsets", "NONE"] == 10
    assert sum(broker.figures.request_time("list-offsets").counts) == 10


async def test_a_topic_that_stores_no_times_is_refused_as_ever(client: Wire) -> None:
    await client.call(create_topic("a", message_format_version="0.9.0"))
    first = result(await client.call(list_offsets("a", (0, NOW))))
    again = result(await client.call(list_offsets("a", (0, NOW))))
    assert first == again
    assert first.error_code


@pytest.mark.parametrize("size", [1800, 2100, 30_000])
@pytest.mark.parametrize("api", [LIST_OFFSETS, FETCH, PRODUCE], ids=lambda api: api.name)
async def test_a_long_name_is_refused_as_a_short_one(client: Wire, api: Api, size: int) -> None:
    name = "x" * size
    request = {
        LIST_OFFSETS: list_offsets(name, (0, NOW)),
        FETCH: fetch(name, (0, 0)),
        PRODUCE: produce(name, message_set(NOW)),
    }[api]
    refused = InvalidTopic if api is PRODUCE else UnknownTopicOrPartition
    for _ in range(3):
        found = result(await client.call(request))
        assert found.error_code == refused.code, found.error_message


async def test_a_segment_is_looked_at_once(client: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the look does not tell, and the search goes on in it."""
    await client.call(create_topic("a", retention_ms=-1))
    looks: list[int] = []

    def counted(segment: Segment, target_ms: int, start: int, opened_bytes: int) -> None:
        looks.append(target_ms)

    for number in range(5):
        await client.call(produce("a", message_set(NOW + number)))
    for module in (reader, search):
        monkeypatch.setattr(module, "find_time_at_once", counted)
    for number in range(5):
        found = result(await client.call(list_offsets("a", (0, NOW + number))))
        assert found.offset == number
    assert looks == [NOW + number for number in range(5)]
