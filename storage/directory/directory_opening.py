"""Opening a data directory: its lock, its content, and whether it was closed cleanly."""

import errno
from contextlib import ExitStack
from pathlib import Path
from random import Random

from ...clock import Clock
from ...config.broker import BrokerSettings
from ...protocol.errors import StorageError
from ..events import Observer
from ..files import Files, make_directory_safely
from ..names import METADATA_FOLDER
from ..open_files import IndexCache, OpenFiles
from ..producers.producer_ids import ProducerIds
from ..seams import ProducerBudget, Seams
from .checkpoints import Checkpoints
from .clean_shutdown import take_marker
from .deletion import DeletionQueue
from .known_files import IDENTITY_FILE, check_format
from .lock import DirectoryLock
from .log_directory import DirectoryParts, LogDirectory
from .reserve import Reserve
from .startup import Startup
from .topics import TopicRegistry


def open_directory(
    settings: BrokerSettings,
    *,
    clock: Clock,
    files: Files,
    observe: Observer,
    random: Random,
    member: bool = False,
) -> LogDirectory:
    """Open the data directory, creating it if it is missing.

    `member` is for a cluster member: every log is opened as a follower's, with its stored high
    watermark or its log start (`Replica`), and the metadata log is opened later, by
    `LogDirectory.open_metadata`. A single broker leads its metadata log from here on.

    Raises `StorageError` if another process holds the directory, if a later version wrote it, or if
    it cannot be read and written; nothing is held then. A log that cannot be opened does not raise:
    each request for it gets the error.
    """
    path = settings.data_dir
    try:
        make_directory_safely(files, path)
        lock = DirectoryLock(files, path)
    except OSError as error:
        raise _unusable(path, error) from error
    deletions = DeletionQueue(files, clock, observe)
    seams = Seams(
        clock,
        files,
        observe,
        deletions,
        OpenFiles(files, settings.max_open_files),
        random,
        ProducerBudget(clock, settings.max_producer_states_bytes),
        index_cache=IndexCache(settings.index_cache_bytes),
    )
    with ExitStack() as opened:
        opened.callback(lock.release)
        opened.callback(seams.open_files.close)
        try:
            directory = _open_locked(settings, lock, seams, deletions, opened, member)
        except OSError as error:
            raise _unusable(path, error) from error
        opened.pop_all()
    return directory


def _open_locked(
    settings: BrokerSettings,
    lock: DirectoryLock,
    seams: Seams,
    deletions: DeletionQueue,
    opened: ExitStack,
    member: bool,
) -> LogDirectory:
    """Return the directory whose lock is held, recovered where necessary.

    `opened` collects what has to be closed after a failure.
    """
    path, files, observe = settings.data_dir, seams.files, seams.observe
    reserve = Reserve(files, path, settings.disk_reserve_bytes, seams.disk_room, observe)
    check_format(files, path)
    if not member and files.exists(path / IDENTITY_FILE):
        raise StorageError(
            f"{path} is of a cluster member, and the other members would not know "
            "what it takes as a single broker: start it with its broker.id, 1 to 999"
        )
    has_metadata_log = files.exists(path / METADATA_FOLDER)
    # The marker is removed first: a crash at any later point is an unclean stop.
    unclean = take_marker(files, path)
    checkpoints = Checkpoints(files, path, observe, watermarks=member)
    producer_ids = ProducerIds(files, path, observe, seams.random)
    startup = Startup(seams, settings, reserve, member=member, has_metadata_log=has_metadata_log)
    opened.callback(startup.abandon)
    registry = TopicRegistry(files, path, settings, startup.run())
    registry.metadata_offset = startup.metadata_offset
    directory = LogDirectory(
        DirectoryParts(
            settings=settings,
            lock=lock,
            seams=seams,
            deletions=deletions,
            reserve=reserve,
            checkpoints=checkpoints,
            producer_ids=producer_ids,
            startup=startup,
            registry=registry,
            stopped_cleanly=unclean is not None,
        )
    )
    directory.recover(unclean)
    return directory


def _unusable(path: Path, error: OSError) -> StorageError:
    access = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    advice = "make it readable and writable, or start" if access else "start"
    return StorageError(
        f"the data directory {path} cannot be used: {error}; {advice} with another data.dir "
        "(--data-dir)"
    )
