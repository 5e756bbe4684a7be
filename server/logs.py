"""Access of handlers to partitions: finding, creating if allowed, preparing and watching them."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ..config.broker import BrokerSettings
from ..protocol.errors import HorologError, InvalidTopic, UnknownTopicOrPartition
from ..storage.directory.log_directory import LogDirectory
from ..storage.directory.topics import TopicEntry
from ..storage.log.log import Log
from ..storage.log.trimmed import READ_AT_ONCE_BYTES, unread
from .parking import ParkingLot, Partition
from .window_topics import check_not_window, check_on_demand, is_reserved
from .work import Work


class Logs:
    """Access to the logs of a data directory.

    The parking lots in `lots` are told when a log moves or is deleted.
    """

    def __init__(
        self,
        directory: LogDirectory,
        settings: BrokerSettings,
        work: Work,
        lots: Sequence[ParkingLot],
    ) -> None:
        self._directory = directory
        self._opened = directory.opened_log
        self._settings = settings
        self._work = work
        self._lots = lots
        self._preparing: dict[Log, asyncio.Future[None]] = {}
        self.settle: Callable[[str], None]
        """`MetadataStore.settle` and `create_now`, once there is a store."""
        self.create_now: Callable[[str, int], None]

    def topic(self, name: str) -> TopicEntry:
        """Return the entry of a topic. Raises `UnknownTopicOrPartition`, and `InvalidTopic` for the
        name of a window, like the other methods."""
        entry = self._directory.topics().get(name)
        if entry is None:
            check_not_window(self._directory.topics(), name)
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        return entry

    def is_window(self, name: str) -> bool:
        """Whether `name` is the name of a window, and not of a topic."""
        return is_reserved(self._directory.topics(), name)

    def check_partition(self, topic: str, partition: int) -> None:
        """Raise `UnknownTopicOrPartition` unless the partition exists. Opens nothing."""
        partitions = self.topic(topic).partitions
        if not 0 <= partition < partitions:
            raise UnknownTopicOrPartition(
                f"topic {topic!r} has partitions 0 to {partitions - 1}, not {partition}"
            )

    def find(self, topic: str, partition: int) -> Log:
        """Return the log of a partition. Raises `UnknownTopicOrPartition`, and the errors of
        opening the log."""
        log = self._opened((topic, partition))
        if log is None:
            check_not_window(self._directory.topics(), topic)
            log = self._directory.log(topic, partition)
        if log.on_advance is None:
            log.on_advance = self._moved
        return log

    def find_stored(self, topic: str, partition: int) -> Log:
        """As `find`, for a client that may read windows. A name becomes that of a window when its
        base is created: a client that named it before has to ask again."""
        try:
            return self.find(topic, partition)
        except InvalidTopic as error:
            raise UnknownTopicOrPartition(
                f"topic {topic!r} did not exist; now it is a window: ask again"
            ) from error

    def find_or_create(self, target: Partition) -> Log:
        """As `find`, but create a topic that does not exist, if the settings allow it.

        Nothing is created for a partition that the new topic would not have.
        """
        log = self._opened(target)
        if log is not None and log.on_advance is not None:
            return log
        topic, partition = target
        try:
            return self.find(topic, partition)
        except UnknownTopicOrPartition:
            # The topic may be in creation.
            self.settle(topic)
            exists = topic in self._directory.topics()
            if not exists and not 0 <= partition < self._settings.num_partitions:
                raise
        if not exists:
            self.create(topic)
        return self.find(topic, partition)

    def create(self, topic: str) -> None:
        """Create a topic because a client asked for it, if the settings allow that.

        Raises `UnknownTopicOrPartition` when they do not, `InvalidTopic` for a bad name.
        """
        self.settle(topic)
        if topic in self._directory.topics():
            return
        check_on_demand(self._directory.topics(), topic)
        if not self._settings.auto_create_topics_enable:
            raise UnknownTopicOrPartition(
                f"topic {topic!r} does not exist, and auto.create.topics.enable is off"
            )
        self.create_now(topic, self._settings.num_partitions)

    def is_current(self, log: Log) -> bool:
        """Whether `log` is still the log of its partition: false if the topic was deleted, even if
        there is a new topic of the same name."""
        target = log.topic, log.partition
        try:
            return self._opened(target) is log or self._directory.log(*target) is log
        except (HorologError, OSError):
            return False

    def unprepared(self, partitions: Iterable[tuple[str, int]]) -> list[Log]:
        """Return the logs of `partitions` that have to be prepared before they are read."""
        found: dict[Log, None] = {}
        for topic, partition in partitions:
            try:
                log = self.find(topic, partition)
            except (HorologError, OSError):
                continue  # Reading the log raises the same error, which becomes the answer.
            if not log.prepared:
                found[log] = None
        return list(found)

    async def prepare(self, logs: Iterable[Log]) -> None:
        """Prepare `logs` in threads, each once, however many requests wait for it.

        A failure is not raised here: the request that reads the log raises it.
        """
        waiting = []
        for log in logs:
            preparing = self._preparing.get(log)
            if preparing is None:
                preparing = self._work.in_storage_thread(log.prepare)
                self._preparing[log] = preparing
                preparing.add_done_callback(partial(self._prepared, log))
            waiting.append(asyncio.shield(preparing))
        await asyncio.gather(*waiting, return_exceptions=True)

    async def read_trimmed(self, log: Log) -> None:
        """Read the first segment of a log, if it was trimmed, so that the time by which retention
        judges it is known. The log must be prepared. May take long, in threads."""
        while (reading := unread(log)) is not None:
            # Messages that were appended during a long read are few, and are read at once.
            if reading.size_bytes > READ_AT_ONCE_BYTES:
                await self._work.in_storage_thread(reading.run)
            else:
                reading.run()
            reading.take()

    def _prepared(self, log: Log, _: asyncio.Future[None]) -> None:
        del self._preparing[log]

    def went_away(self, topic: str, partitions: int) -> None:
        """Have requests that wait for partitions of a deleted topic checked."""
        for partition in range(partitions):
            for lot in self._lots:
                lot.advanced((topic, partition))

    def _moved(self, log: Log) -> None:
        partition = log.topic, log.partition
        for lot in self._lots:
            if partition not in lot.by_awaited:
                continue
            if log.failure is not None:
                lot.advanced(partition)
            elif lot.minds_moves:
                lot.appended(partition, log)
