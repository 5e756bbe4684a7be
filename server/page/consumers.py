"""Named positions and how far behind they are: those furthest behind in time first."""

from math import inf
from typing import Final

from ...protocol.lag import Lag
from ..handlers.base import Services
from ..metrics.lags import Key
from .query import Query

CONSUMERS_AT_ONCE: Final = 100


async def consumers(services: Services, query: Query) -> dict[str, object]:
    """The followed positions, of all topics or of `topic`; `hidden` says whether there may be
    others that the viewer has no right to."""
    topic = query.text("topic", "")
    await services.lags.refresh()
    access = query.access
    every = access.every_topic() and access.every_group()
    followed = {
        key: lag
        for key, lag in services.lags.followed.items()
        if topic in ("", key[1]) and access.topic(key[1]) and access.group(key[0])
    }
    furthest = sorted(followed.items(), key=_behind, reverse=True)[:CONSUMERS_AT_ONCE]
    return {
        "now_ms": services.clock.now_ms(),
        "count": len(followed),
        "left_out": services.lags.left_out if every else 0,
        "hidden": not every,
        "consumers": [_consumer(services, key, lag) for key, lag in furthest],
    }


def _behind(followed: tuple[Key, Lag]) -> tuple[float, int]:
    lag = followed[1]
    return (inf if lag.seconds is None else lag.seconds), lag.messages


def _consumer(services: Services, key: Key, lag: Lag) -> dict[str, object]:
    name, topic, partition = key
    position = services.directory.committed.get(name, topic, partition)
    return {
        "name": name,
        "topic": topic,
        "partition": partition,
        "offset": None if position is None else position.offset,
        "commit_time_ms": None if position is None else position.commit_time_ms,
        "messages": lag.messages,
        "seconds": lag.seconds,
        "estimated": lag.estimated,
        "catch_up_seconds": lag.catch_up_seconds,
    }
