"""Waiting for the sync of one log among those that are synced together."""

import asyncio

from ..protocol.errors import StorageError
from ..storage.log.flush import FlushWork, GroupCommit
from ..storage.log.log import Log


async def synced_to(commits: GroupCommit, log: Log, offset: int) -> None:
    """Bring all messages below `offset` to stable storage, before the log start moves there.

    Otherwise a power cut could leave a log end below the log start, and nothing would say which
    messages were dropped. Raises `StorageError`.
    """
    if log.recovery_point < offset:
        sync = _Sync(log)
        commits.request(sync)
        await sync.done
    if log.failure is not None:
        raise log.failure
    if log.recovery_point < offset:
        raise StorageError(f"{log.path}: the log could not be synced; try again")


class _Sync:
    """Stands for a log in a group commit, and reports when its sync is over."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.done = asyncio.get_running_loop().create_future()

    def begin_flush(self, *, closed_only: bool = False) -> FlushWork | None:
        work = self._log.flusher.begin_flush(closed_only=closed_only)
        if work is None:
            self._over()
        return work

    def messages_synced(self, work: FlushWork) -> None:
        self._log.flusher.messages_synced(work)

    def end_flush(self, work: FlushWork, error: OSError | None = None) -> None:
        try:
            self._log.flusher.end_flush(work, error)
        finally:
            self._over()

    def _over(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
