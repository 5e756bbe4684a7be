"""The metadata log of a stopped broker, for commands that change users, access rules and quotas. If
the broker was never started, the log is created."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import SystemRandom
from typing import Final

from ...clock import SystemClock
from ...protocol.errors import StorageError
from ..directory.deletion import DeletionQueue
from ..directory.known_files import IDENTITY_FILE, check_format
from ..directory.lock import DirectoryLock
from ..directory.topics import (
    TOPICS_FILE,
    MalformedTopics,
    NewerTopics,
    read_metadata_offset,
    read_topics,
)
from ..events import Observer
from ..files import Files
from ..open_files import OpenFiles
from ..seams import ProducerBudget, Seams
from .local_metadata import LocalMetadata, open_local_metadata

_OPEN_FILES: Final = 16


@contextmanager
def offline_metadata(
    files: Files, directory: Path, observe: Observer, *, advice: str
) -> Iterator[LocalMetadata]:
    """Open the metadata log of a data directory, hold the directory's lock meanwhile, and close the
    log cleanly at the end.

    `advice` says how to ask a broker instead. Raises `StorageError`, `OSError`.
    """
    lock = DirectoryLock(files, directory, advice=f"stop that broker, or {advice}")
    try:
        check_format(files, directory)
        if files.exists(directory / IDENTITY_FILE):
            raise StorageError(
                f"{directory} is of a cluster member, whose users, rules and quotas are the "
                f"cluster's: {advice}"
            )
        seams = _seams(files, observe)
        metadata = _opened(files, directory, seams)
        try:
            yield metadata
        except BaseException:
            with suppress(OSError, StorageError):
                metadata.close()
            raise
        metadata.close()
    finally:
        lock.release()


def _opened(files: Files, directory: Path, seams: Seams) -> LocalMetadata:
    path = directory / TOPICS_FILE
    try:
        topics = read_topics(files, path)
    except (MalformedTopics, NewerTopics) as error:
        raise StorageError(f"{path} cannot be read: {error}; start the broker first") from error
    if not all(entry.topic_id for entry in topics.values()):
        raise StorageError(f"{path} has topics without ids: start the broker first")
    entries = {name: entry for name, entry in topics.items() if not entry.deleting}
    return open_local_metadata(directory, seams, entries, read_metadata_offset(files, path))


def _seams(files: Files, observe: Observer) -> Seams:
    clock = SystemClock()
    return Seams(
        clock,
        files,
        observe,
        DeletionQueue(files, clock, observe),
        OpenFiles(files, _OPEN_FILES),
        SystemRandom(),
        ProducerBudget(clock),
    )
