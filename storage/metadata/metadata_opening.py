"""The metadata log of a data directory: opened, or made of what a single broker left."""

from pathlib import Path
from random import Random

from ...protocol.errors import StorageError
from ..directory.position_reading import PositionReading
from ..directory.position_table import PositionTable
from ..directory.positions import POSITIONS_FILE, Positions
from ..directory.startup import Startup
from ..directory.topic_changes import TopicChanges
from ..names import METADATA_TOPIC
from ..seams import Seams
from .access_state import AccessState
from .folder import MetadataFolder
from .metadata_log import MetadataLog
from .metadata_state import records_of
from .snapshot import encode_state

_FIRST_OFFSETS_BITS = 40


def open_metadata(
    directory: Path,
    seams: Seams,
    changes: TopicChanges,
    stored: Positions,
    startup: Startup,
    access: AccessState,
) -> MetadataLog:
    """The metadata log of a data directory that has been opened as a cluster member's.

    Where there is none, the present topics and positions, and `access`, become its first state,
    once; from then on the file of positions is not needed. Raises `OSError`, `StorageError`.
    """
    folder = MetadataFolder(directory, seams)
    if not folder.exists:
        _migrate(folder, changes, stored, access, seams.random)
        seams.observe("metadata_log_made", topics=len(changes.names()), positions=len(stored))
    stored.close()
    stored.go_by(PositionTable())
    path = directory / POSITIONS_FILE
    if seams.files.exists(path):
        seams.files.unlink(path)
        seams.files.sync_directory(directory)
    log = folder.open()
    positions = PositionReading(
        PositionTable(), max_bytes=stored.max_bytes, max_positions=stored.max_positions
    )
    noted = startup.metadata_offset or 0
    metadata = MetadataLog(folder, seams, log, changes, positions, noted, adopts=startup.lost)
    if startup.lost:
        metadata.doubt("there was no topics file that could be read")
    elif startup.missing:
        metadata.doubt(f"{len(startup.missing)} folders of partitions were missing")
    return metadata


def _migrate(
    folder: MetadataFolder,
    changes: TopicChanges,
    stored: Positions,
    access: AccessState,
    random: Random,
) -> None:
    """Make the log of the topics and positions that a single broker has, and of `access`.

    A log that begins with something begins at a random offset: two that were made apart from each
    other agree nowhere, so neither goes on with what the other has. An empty one begins at 0.
    """
    names = sorted(changes.names())
    if METADATA_TOPIC in names:
        raise StorageError(
            f"there is a topic {METADATA_TOPIC!r}, whose name is kept for the metadata log: a "
            "broker with it cannot be a cluster member; copy its messages to a topic of another "
            "name and delete it first"
        )
    held = ((name, stored.of(name)) for name in stored.names())
    entries = [changes.entry(name) for name in names]
    offset = 1 + random.getrandbits(_FIRST_OFFSETS_BITS) if entries or access else 0
    changes.keep_metadata(offset)  # So that there is a topics file: one that is missing is lost.
    folder.make(offset, encode_state(offset, records_of(entries, held, access)))
