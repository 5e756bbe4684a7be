"""How far a streaming query has come, stored at the broker as positions under a name."""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from ..client.cluster.servers import Servers
from ..client.consume.consumer import Consumer
from .connecting import CLIENT_ID
from .options import READ_NAMES, BrokerOptions, OptionValues, group_id
from .planning import Offsets, TopicPartition
from .questions import LOOP

_LONGEST_WAIT_MS: Final = 5_000
"""Spark calls one listener after the other, so the others wait for a broker that does not answer.
"""

_log = logging.getLogger(__name__)


class Publisher:
    """Stores positions of one source under one name.

    Nothing that goes wrong is raised: it is logged, and done again with the next positions.
    """

    def __init__(self, broker: BrokerOptions, name: str) -> None:
        """`name` is the one that the positions get."""
        LOOP.enter()
        self._broker = broker
        self._name = name
        self._consumer: Consumer | None = None
        self._wanted: Offsets = {}
        self._stored: Offsets = {}
        self._failure = ""

    def publish(self, offsets: Offsets) -> None:
        """Store the next offsets to read; returns when they are durable, or could not be stored."""
        self._wanted = dict(offsets)
        if self._wanted == self._stored:
            return
        try:
            LOOP.run(self._store())
        except Exception as error:
            self._warn(str(error))
            with suppress(Exception):
                LOOP.run(self._drop())
        else:
            self._stored, self._failure = self._wanted, ""

    def close(self) -> None:
        """Try once more what could not be stored, and close the connection."""
        self.publish(self._wanted)
        with suppress(Exception):
            LOOP.run(self._drop())
        LOOP.leave()

    async def _store(self) -> None:
        if self._consumer is None:
            self._consumer = Consumer(
                self._broker.servers,
                name=self._name,
                client_id=CLIENT_ID,
                request_timeout_ms=min(self._broker.request_timeout_ms, _LONGEST_WAIT_MS),
                retry_timeout_ms=0,
            )
        consumer = self._consumer
        assigned = set(consumer.assignment)
        for key, offset in self._wanted.items():
            if key in assigned:
                consumer.seek(*key, offset)
            else:
                consumer.assign(*key, offset=offset)
        await consumer.commit()

    async def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close()

    def _warn(self, failure: str) -> None:
        """Log a failure, once while it stays the same."""
        if failure != self._failure:
            _log.warning(
                "the progress of groupId=%s could not be stored at %s (%s); it is tried again with "
                "the next batch",
                self._name,
                self._broker.address,
                failure,
            )
        self._failure = failure


def publisher_of(options: Mapping[str, str]) -> Publisher | None:
    """For a stream with these options of a read; None when they do not ask for one."""
    given = OptionValues(options)
    name = group_id(given)
    return None if name is None else Publisher(given.broker(), name)


def destination(server: str | Servers | Mapping[str, str], group: str) -> tuple[BrokerOptions, str]:
    """Where positions are stored, and under which name: `server` is an address, or the options of
    a read. Raises OptionError."""
    if isinstance(server, Servers):
        broker = BrokerOptions(server)
    else:
        given = OptionValues({"bootstrap.servers": server} if isinstance(server, str) else server)
        given.check(READ_NAMES, "publish_progress")
        broker = given.broker()
    name = group_id(OptionValues({"groupId": group}))
    assert name is not None
    return broker, name


def earliest(ends: Iterable[Offsets]) -> Offsets:
    """The offsets that all of several sources have reached, in what any of them reads."""
    found: dict[TopicPartition, int] = {}
    for offsets in ends:
        for key, offset in offsets.items():
            found[key] = min(offset, found.get(key, offset))
    return found
