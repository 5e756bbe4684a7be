"""Windows at a follower, and through a change of the leader."""

from pathlib import Path
from random import Random
from typing import Any

from horolog.protocol.api.schema import replaced
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.protocol.window_topics import WindowName, window_name
from horolog.testing.requests import fetch, list_offsets
from horolog.testing.wire import Wire

from .members import members
from .test_copying import NOW_MS, PARTITIONS, SEED
from .test_reading import TOPIC, allowed, filled, plain

NAMES = [
    window_name(WindowName(TOPIC, NOW_MS // 2, NOW_MS)),
    window_name(WindowName(TOPIC, NOW_MS - 86_400_000, None)),
    window_name(WindowName(TOPIC, 0, None, by_append=True)),
]


async def test_a_follower_that_has_everything_answers_as_the_leader(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        await filled(all_, Random(SEED), 60)
        leader, follower = await Wire.open(all_[1].address), await Wire.open(all_[2].address)
        asked: list[Any] = []
        for name in NAMES:
            for partition in range(PARTITIONS):
                end = all_[1].log(TOPIC, partition).log_end_offset
                asked += [fetch(name, (partition, offset)) for offset in range(0, end + 1, 7)]
                asked += [
                    list_offsets(name, (partition, time_ms))
                    for time_ms in (-1, -2, -3, NOW_MS // 2, NOW_MS - 1)
                ]
        for request in asked:
            ours = await follower.call(allowed(request))
            theirs = await leader.call(allowed(request))
            assert ours.follower_heard_ms >= 0
            assert plain(ours) == plain(theirs), request
        found = await follower.call(
            replaced(
                MetadataRequest(topics=[MetadataTopic(name=name) for name in NAMES]),
                allow_auto_topic_creation=True,
            )
        )
        assert [topic.error_code for topic in found.topics] == [0, 0, 0]
        assert {topic.name for topic in found.topics} == set(NAMES)
        assert all_[1].broker is not None
        assert set(all_[1].broker.services.directory.topics()) == {TOPIC}
        leader.close()
        follower.close()
