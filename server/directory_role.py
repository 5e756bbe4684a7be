"""What a data directory is opened as: a single broker's, or a cluster member's."""

from ..clock import Clock
from ..config.broker import BrokerSettings
from ..protocol.errors import InvalidConfig
from ..storage.directory.known_files import UNFINISHED_SETTING_ASIDE
from ..storage.directory.log_directory import LogDirectory
from ..storage.events import Observer
from ..storage.files import Files
from .replication.member_files import MemberFiles


async def make_room(
    settings: BrokerSettings, files: Files, clock: Clock, observe: Observer
) -> None:
    """Set aside data of another cluster where that was asked for, or begun."""
    if settings.cluster_discard or files.exists(settings.data_dir / UNFINISHED_SETTING_ASIDE):
        from .replication.membership import make_room as set_aside

        await set_aside(settings, files, clock, observe)


def open_replica_files(
    directory: LogDirectory, settings: BrokerSettings, files: Files
) -> MemberFiles | None:
    """What the directory of a cluster member knows of itself and of leaders; `None` for a single
    broker.

    Raises `InvalidConfig`, `StorageError`, `OSError`.
    """
    if settings.broker_id:
        from .replication.membership import open_as_one

        return open_as_one(settings, directory, files)
    if given := settings.of_several:
        raise InvalidConfig(
            f"{', '.join(given)}: only for a cluster member, and broker.id, its number in the "
            "cluster, must be 1 to 999; it is 0, which is a broker that is alone"
        )
    return None
