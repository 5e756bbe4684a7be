"""Before a broker opens its data: whether that is to make room for a cluster's (--discard)."""

from contextlib import suppress
from typing import Final

from ...clock import Clock
from ...config.broker import BrokerSettings
from ...config.cluster_table import NOT_FOLLOWING
from ...protocol.api.topics.metadata import METADATA, MetadataRequest
from ...protocol.errors import HorologError, InvalidConfig
from ...storage.directory.known_files import CLUSTER_ID_FILE, IDENTITY_FILE
from ...storage.directory.set_aside import finish_setting_aside, set_aside
from ...storage.events import Observer
from ...storage.files import Files
from ...storage.log.epoch_history import NO_EPOCH
from ...storage.names import METADATA_FOLDER, parse_folder_name
from .identity_file import decode_identity
from .leader_connection import AcceptsFollower
from .replica_fetcher import given_addresses

ASK_WITHIN_MS: Final = 10_000
"""How long the leader may take to say of which cluster it is."""


async def make_room(
    settings: BrokerSettings, files: Files, clock: Clock, observe: Observer
) -> None:
    """Finish what was begun to be set aside; set aside what is not of the cluster to be joined.

    Raises `InvalidConfig`, `StorageError`, `OSError`.
    """
    directory = settings.data_dir
    finished = finish_setting_aside(files, directory)
    if finished is not None:
        observe("data_set_aside", folder=str(finished), reason="an earlier start began it")
    if not settings.cluster_discard:
        return
    joins = settings.cluster_etcd or settings.cluster_follow != NOT_FOLLOWING
    if not (settings.broker_id and joins) or settings.cluster_create:
        raise InvalidConfig(
            "cluster.discard (--discard) is for a broker that follows another: give broker.id "
            "(--broker-id), and cluster.follow (--follow) or cluster.etcd (--etcd), and not "
            "cluster.create (--create-cluster); or leave it away"
        )
    if not files.exists(directory):
        return
    reason = await _why_foreign(settings, files, observe)
    if reason:
        folder = set_aside(files, directory, clock.now_ms())
        observe("data_set_aside", folder=str(folder), reason=reason)


async def _why_foreign(settings: BrokerSettings, files: Files, observe: Observer) -> str:
    """Why what is in the data directory is not the cluster's; empty if it is, or is nothing."""
    path = settings.data_dir / IDENTITY_FILE
    names = files.names(settings.data_dir)
    holds_data = METADATA_FOLDER in names or any(map(parse_folder_name, names))
    joined = False
    if files.exists(path):
        try:
            known = decode_identity(files.read_bytes(path))
        except (OSError, ValueError) as error:
            return f"{IDENTITY_FILE} cannot be read: {error}"
        joined = known.identity.highest_epoch > NO_EPOCH
    if not joined:
        return "it has topics that are of no cluster" if holds_data else ""
    ours = _cluster_id(files, settings)
    try:
        theirs = await _asked(settings)
    except (HorologError, OSError, ValueError) as error:
        text = error.message if isinstance(error, HorologError) else str(error)
        observe("not_discarded", reason="it is not known which cluster it is to be", error=text)
        return ""
    if theirs in (ours, ""):
        return ""
    return f"it is of cluster {ours or 'unknown'}, and is to be of cluster {theirs}"


def _cluster_id(files: Files, settings: BrokerSettings) -> str:
    path = settings.data_dir / CLUSTER_ID_FILE
    if not files.exists(path):
        return ""
    return files.read_bytes(path).decode("ascii", "replace").strip()[:64]


async def _asked(settings: BrokerSettings) -> str:
    """The id of the cluster that is to be joined; empty where there is none yet."""
    if settings.cluster_etcd:
        return await _in_etcd(settings)
    accepts = AcceptsFollower(settings.cluster_credentials, settings.cluster_ca)
    *others, last = given_addresses(settings.cluster_follow)
    for address in others:
        with suppress(HorologError, OSError):
            return await _asked_at(address, accepts)
    return await _asked_at(last, accepts)


async def _asked_at(address: str, accepts: AcceptsFollower) -> str:
    connection = await accepts.connect(address, ASK_WITHIN_MS)
    try:
        found = await connection.submit(METADATA, MetadataRequest(topics=[]))
    finally:
        connection.abort()
    return found.cluster_id or ""


async def _in_etcd(settings: BrokerSettings) -> str:
    from .etcd.access import access_of
    from .etcd.client import EtcdClient
    from .etcd.gateway import Gateway
    from .etcd.store import ClusterStore

    async with EtcdClient(access_of(settings), ASK_WITHIN_MS / 1000) as client:
        return (await ClusterStore(Gateway(client), settings.cluster_name).read()).cluster_id
