"""A broker that has `broker.id` becomes a cluster member."""

from collections.abc import Callable
from dataclasses import replace
from random import SystemRandom

from ...clock import boot_time_s
from ...config.broker import BrokerSettings
from ...config.cluster_table import LISTENS, NOT_FOLLOWING
from ...protocol.errors import InvalidConfig
from ...storage.directory.log_directory import LogDirectory
from ...storage.events import Observer
from ...storage.files import Files
from ...values import value_class
from ..handlers.base import Services
from .by_hand import ByHand
from .cluster import Cluster
from .deciding import Decider
from .epoch_owners_file import EpochOwnersFile
from .identity_file import IdentityFile


@value_class
class ReplicaFiles:
    """What a data directory knows of itself, and of leaders, in its cluster."""

    identity: IdentityFile
    owners: EpochOwnersFile


def open_as_one(settings: BrokerSettings, directory: LogDirectory, files: Files) -> ReplicaFiles:
    """Have a directory be that of a broker of a cluster: what topics and positions it has are in
    its metadata log from now on. Raises `InvalidConfig`, `StorageError`, `OSError`."""
    follows = settings.cluster_follow != NOT_FOLLOWING
    if settings.cluster_etcd or settings.cluster_name:
        from .etcd.setting_up import check

        check(settings)
    if follows and (settings.cluster_create or settings.cluster_alone):
        raise InvalidConfig(
            "cluster.create and cluster.alone (--create-cluster, --alone) are for a broker that "
            "leads, and cluster.follow (--follow) is for one that does not: give one of them"
        )
    few = settings.min_insync_replicas > settings.cluster_brokers
    if few and not settings.cluster_etcd:
        raise InvalidConfig(
            f"min.insync.replicas is {settings.min_insync_replicas}, and there are "
            f"{settings.cluster_brokers} brokers (cluster.brokers); it can be that at most"
        )
    identity = IdentityFile(files, settings.data_dir, settings.broker_id)
    if follows and not identity.identity.nonce and directory.topics():
        raise InvalidConfig(
            f"{settings.data_dir} has topics that are not of the cluster, and a follower has those "
            "of its leader only: start it with an empty data directory (--data-dir), with "
            "--discard, which sets these topics aside, or with --create-cluster instead of "
            "--follow if these are the topics that count"
        )
    joins = bool(settings.cluster_etcd) and not settings.cluster_create
    if joins and not identity.identity.nonce and directory.topics():
        raise InvalidConfig(
            f"{settings.data_dir} has topics that are not of the cluster {settings.cluster_name}: "
            "start it with an empty data directory (--data-dir), with --discard, which sets these "
            "topics aside, or with --create-cluster if there is no such cluster yet and these count"
        )
    owners = EpochOwnersFile(files, settings.data_dir)
    metadata = directory.open_metadata()
    if (follows or joins) and not identity.identity.nonce and not metadata.was_copied:
        # What a single broker recorded, of users perhaps. It begins at offset 0, as the log that is
        # to be copied may, and two logs without epochs cannot be told apart.
        metadata.truncate(0)
    return ReplicaFiles(identity, owners)


def join_cluster(
    services: Services, files: ReplicaFiles, observe: Observer, native_address: str
) -> Services:
    """The same services, of a broker in a cluster. Raises `StorageError`."""
    settings = services.settings
    decides: Callable[[Cluster], Decider] = ByHand
    seconds = services.clock.monotonic
    if settings.cluster_etcd:
        from .etcd.setting_up import by_etcd

        decides, seconds = by_etcd(settings), boot_time_s
    if settings.cluster_address != LISTENS:
        native_address = settings.cluster_address
    cluster = Cluster(
        settings,
        identity=files.identity,
        owners=files.owners,
        directory=services.directory,
        clock=services.clock,
        random=SystemRandom(),
        observe=observe,
        commits=services.commits,
        work=services.work,
        produces=services.produces,
        scrubber=services.scrubber,
        store=services.metadata,
        groups=services.groups,
        native_address=native_address,
        kafka_address=services.kafka_address,
        seconds=seconds,
        decides=decides,
    )
    services.creations.allowed = lambda: cluster.leads
    return replace(services, cluster=cluster)
