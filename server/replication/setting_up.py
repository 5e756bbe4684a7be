"""A broker that has `broker.id` becomes one of several."""

from dataclasses import replace
from random import SystemRandom

from ...config.broker import BrokerSettings
from ...config.cluster_table import NOBODY
from ...protocol.errors import InvalidConfig
from ...storage.directory.log_directory import LogDirectory
from ...storage.events import Observer
from ...storage.files import Files
from ..handlers.base import Services
from ..replicated_store import ReplicatedStore
from .cluster import Cluster
from .identity_file import IdentityFile


def open_as_one(settings: BrokerSettings, directory: LogDirectory, files: Files) -> IdentityFile:
    """Have a directory be that of a broker of a cluster: what topics and positions it has are in
    its metadata log from now on. Raises `InvalidConfig`, `StorageError`, `OSError`."""
    follows = settings.cluster_follow != NOBODY
    if follows and (settings.cluster_create or settings.cluster_alone):
        raise InvalidConfig(
            "cluster.create and cluster.alone (--create-cluster, --alone) are for a broker that "
            "leads, and cluster.follow (--follow) is for one that does not: give one of them"
        )
    if settings.cluster_min_insync_replicas > settings.cluster_brokers:
        raise InvalidConfig(
            f"cluster.min.insync.replicas is {settings.cluster_min_insync_replicas}, and there are "
            f"{settings.cluster_brokers} brokers (cluster.brokers); it can be that at most"
        )
    identity = IdentityFile(files, settings.data_dir, settings.broker_id)
    if follows and not identity.identity.nonce and directory.topics():
        raise InvalidConfig(
            f"{settings.data_dir} has topics that are not of the cluster, and a follower has those "
            "of its leader only: start it with an empty data directory (--data-dir), or with "
            "--create-cluster instead of --follow if these are the topics that count"
        )
    directory.open_metadata()
    return identity


def join_cluster(
    services: Services, identity: IdentityFile, observe: Observer, native_address: str
) -> Services:
    """The same services, of a broker in a cluster. Raises `StorageError`."""
    store = services.metadata
    assert isinstance(store, ReplicatedStore)
    cluster = Cluster(
        services.settings,
        identity=identity,
        directory=services.directory,
        clock=services.clock,
        random=SystemRandom(),
        observe=observe,
        commits=services.commits,
        work=services.work,
        produces=services.produces,
        store=store,
        groups=services.groups,
        native_address=native_address,
        kafka_address=services.kafka_address,
    )
    services.creations.allowed = lambda: cluster.leads
    return replace(services, cluster=cluster)
