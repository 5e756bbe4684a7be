"""The metadata log of a data directory whose topics are known: a cluster member's, or led here."""

from pathlib import Path

from ...protocol.errors import StorageError
from ..directory.position_reading import PositionReading
from ..directory.reserve import Reserve
from ..directory.topic_changes import TopicChanges
from ..names import METADATA_TOPIC
from ..seams import Seams
from .access_state import AccessState
from .current_state import CurrentState
from .folder import MetadataFolder
from .local_metadata import LocalMetadata
from .metadata_log import MetadataLog
from .metadata_state import records_of
from .snapshot import encode_state

_FIRST_OFFSETS_BITS = 40


def leading_metadata(
    opened: LocalMetadata,
    seams: Seams,
    changes: TopicChanges,
    positions: PositionReading,
    reserve: Reserve,
) -> MetadataLog:
    """The metadata log of a single broker, which leads it; its records are applied."""
    metadata = MetadataLog(
        opened.folder, seams, opened.log, opened.current, changes, positions, reserve, adopts=True
    )
    metadata.lead_alone(opened.state_offset)
    return metadata


def open_metadata(
    directory: Path,
    seams: Seams,
    changes: TopicChanges,
    positions: PositionReading,
    reserve: Reserve,
    *,
    noted: int,
    adopts: bool,
) -> MetadataLog:
    """The metadata log of a data directory that has been opened as a cluster member's.

    `noted` is what the topics file says of how far the log was committed, 0 for nothing. Where
    there is no log, the present topics become its first state, once. Raises `OSError`,
    `StorageError`.
    """
    folder = MetadataFolder(directory, seams)
    if not folder.exists:
        noted = _make(folder, seams, changes)
        seams.observe("metadata_log_made", topics=len(changes.names()), positions=0)
    log = folder.open()
    metadata = MetadataLog(
        folder, seams, log, CurrentState(log), changes, positions, reserve, adopts=adopts
    )
    metadata.follow_from(noted)
    if METADATA_TOPIC in metadata.state.topics:
        raise _named_as_the_log()
    return metadata


def _make(folder: MetadataFolder, seams: Seams, changes: TopicChanges) -> int:
    """Make the log of the topics that there are; where it begins.

    A log that begins with something begins at a random offset: two that were made apart from each
    other agree nowhere, so neither goes on with what the other has. An empty one begins at 0.
    """
    names = sorted(changes.names())
    if METADATA_TOPIC in names:
        raise _named_as_the_log()
    entries = [changes.entry(name) for name in names]
    offset = 1 + seams.random.getrandbits(_FIRST_OFFSETS_BITS) if entries else 0
    changes.keep_metadata(offset)  # So that there is a topics file: one that is missing is lost.
    folder.make(offset, encode_state(offset, records_of(entries, (), AccessState())))
    return offset


def _named_as_the_log() -> StorageError:
    return StorageError(
        f"there is a topic {METADATA_TOPIC!r}, whose name is kept for the metadata log: a "
        "broker with it cannot be a cluster member; copy its messages to a topic of another "
        "name and delete it first"
    )
