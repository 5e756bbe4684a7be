"""A single-node cluster: every write is committed as soon as it is local."""

from collections.abc import Callable, Mapping, Sequence

from ..protocol.errors import CodedError
from ..storage.directory.log_directory import LogDirectory
from ..storage.log.log import Log
from ..storage.replica.replica import Replica


class SingleNode:
    """The `Leadership` of a broker without others: it always leads, and is always in sync."""

    def check_topics(self) -> None:
        pass

    def check_coordinates(self) -> None:
        pass

    def check_positions(self) -> None:
        pass

    def begin_append(self) -> None:
        pass

    def appended(self, offset: int, settled: Callable[[CodedError | None], None]) -> None:
        settled(None)

    async def trimmed(self, logs: Sequence[Log]) -> Mapping[Log, Exception]:
        return {}


def lead_alone(directory: LogDirectory) -> None:
    """Open the metadata log and lead it and every other log, in an epoch above all that this
    directory has seen. All records are applied when this returns. Raises `OSError`, `StorageError`.
    """
    metadata = directory.open_metadata()
    log = metadata.log
    metadata.lead(1 + max(Replica(log).last_epoch, log.epochs.highest_seen))
    epoch = log.epochs.highest_seen
    log.flusher.flush()
    log.hold_high_watermark(None)
    metadata.apply()

    def lead(opened: Log) -> None:
        Replica(opened).lead(max(epoch, 1 + opened.epochs.highest_seen))
        opened.hold_high_watermark(None)

    directory.when_opened(lead)
