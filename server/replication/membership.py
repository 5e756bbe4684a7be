"""The steps by which a broker with `broker.id` becomes a cluster member."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import SystemRandom
from typing import Final

from ...clock import Clock, SystemClock, boot_time_s
from ...config.broker import BrokerSettings
from ...config.cluster_table import LISTENS, NOT_FOLLOWING
from ...protocol.api.cluster.replicate import ReplicateRequest
from ...protocol.api.topics.metadata import METADATA, MetadataRequest
from ...protocol.errors import HorologError, InvalidConfig
from ...replication.effects import Effect
from ...replication.hand_node import HandNode
from ...replication.settings import Incarnation
from ...storage.directory.known_files import (
    CLUSTER_ID_FILE,
    IDENTITY_FILE,
    finish_setting_aside,
    set_aside,
)
from ...storage.directory.log_directory import LogDirectory
from ...storage.events import Observer
from ...storage.files import Files
from ...storage.log.epoch_history import NO_EPOCH
from ...storage.names import METADATA_FOLDER, parse_folder_name
from ..handlers.base import Services
from .cluster import Cluster
from .member import GIVEN, ClusterMember, Election, given_addresses
from .member_files import EpochOwnersFile, IdentityFile, MemberFiles, decode_identity
from .replica_fetcher import AcceptsFollower

ASK_WITHIN_MS: Final = 10_000
"""How long the leader may take to answer with its cluster id."""


async def make_room(
    settings: BrokerSettings, files: Files, clock: Clock, observe: Observer
) -> None:
    """Set aside data that is not of the cluster to be joined, if `cluster.discard` asks for it; and
    finish setting data aside if an earlier start began it.

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
    """Return why the data in the directory is not the cluster's; empty if it is, or if there is no
    data."""
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
        return "it has topics that belong to no cluster" if holds_data else ""
    ours = _cluster_id(files, settings)
    try:
        theirs = await _asked(settings)
    except (HorologError, OSError, ValueError) as error:
        text = error.message if isinstance(error, HorologError) else str(error)
        observe("not_discarded", reason="the cluster to join is not known", error=text)
        return ""
    if theirs in (ours, ""):
        return ""
    return f"it belongs to cluster {ours or 'unknown'}, and is to join cluster {theirs}"


def _cluster_id(files: Files, settings: BrokerSettings) -> str:
    path = settings.data_dir / CLUSTER_ID_FILE
    if not files.exists(path):
        return ""
    return files.read_bytes(path).decode("ascii", "replace").strip()[:64]


async def _asked(settings: BrokerSettings) -> str:
    """Return the id of the cluster to join; empty if there is no such cluster yet."""
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
    from .etcd.client import EtcdClient, Gateway, access_of
    from .etcd.store import ClusterStore

    async with EtcdClient(access_of(settings), ASK_WITHIN_MS / 1000) as client:
        return (await ClusterStore(Gateway(client), settings.cluster_name).read()).cluster_id


def open_as_one(settings: BrokerSettings, directory: LogDirectory, files: Files) -> MemberFiles:
    """Open a data directory as a cluster member's: its topics and positions are in its metadata log
    from now on. Raises `InvalidConfig`, `StorageError`, `OSError`."""
    follows = settings.cluster_follow != NOT_FOLLOWING
    if settings.cluster_etcd or settings.cluster_name:
        from .etcd.election import check_settings

        check_settings(settings)
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
        # Drop what this broker recorded as a single broker, for example users. That log begins at
        # offset 0, as the leader's may, and two logs without epochs cannot be told apart.
        metadata.truncate(0)
    return MemberFiles(identity, owners)


class ManualPromotion:
    """The `Election` of a cluster in which people decide who leads."""

    in_sync = None

    def __init__(self, member: ClusterMember) -> None:
        self._member = member
        settings = member.settings
        replication = member.replication_settings()
        self.node = HandNode(
            member.stored,
            Incarnation(member.broker_id, member.new_number()),
            replication._replace(answer_within_s=settings.replica_lag_time_max_ms / 1000),
            member.new_number,
            may_have_lost=member.stored.may_have_lost,
            copied=member.stored.copied,
            follows=GIVEN if member.given_leaders else None,
            brokers=settings.cluster_brokers,
            create=settings.cluster_create and not member.stored.identity.nonce,
        )

    @property
    def waits_for(self) -> str:
        node = self.node
        if node.contested_epoch != NO_EPOCH:
            return (
                f"another broker led in epoch {node.contested_epoch} than this one knows, so that "
                "one of the two has other messages: start the one that is to follow once with "
                "--discard, which sets aside what it has"
            )
        if node.newer_epoch != NO_EPOCH:
            return (
                f"another broker has led since, in epoch {node.newer_epoch}: start this one with "
                "--follow and its address, or promote it (horolog cluster promote)"
            )
        if node.confirmed_by is None:
            return (
                "this broker belongs to no cluster yet: start it with --follow and the leader's "
                "address or, if it has the data that counts, once with --create-cluster"
            )
        if node.identity.in_doubt:
            return (
                "something may be missing that this broker has confirmed: start it with --follow, "
                "or let it lead all the same (horolog cluster promote --accept-loss)"
            )
        confirmed = len(node.confirmed_by)
        return (
            f"of the {node.brokers - 1} other brokers (cluster.brokers), which have to say that "
            f"no broker was promoted meanwhile, {confirmed} did so: start them, or start this one "
            "with --alone"
        )

    @property
    def contested_epoch(self) -> int:
        return self.node.contested_epoch

    def knows(self, hello: ReplicateRequest) -> bool:
        return True

    async def know(self, hello: ReplicateRequest) -> None:
        """Do nothing: every broker is accepted, up to the number in `cluster.brokers`."""

    @property
    def promise(self) -> str:
        return self.node.why_not_promote() or ""

    async def prepare(self) -> None:
        """Do nothing: there is nothing to read before the start."""

    def start(self) -> None:
        if self._member.settings.cluster_alone:
            self.node.lead_alone(self._member.now_s)

    async def resign(self) -> None:
        """Do nothing: a person hands over before stopping the broker."""

    async def stop(self) -> None:
        """Do nothing: there is nothing to release."""

    def tick(self, now_s: float) -> None:
        self.node.tick(now_s)

    def carry_out(self, effect: Effect) -> None:
        """Do nothing: the node has no effects of its own."""

    def promote(self, now_s: float, *, accept_loss: bool) -> str | None:
        return self.node.promote(now_s, accept_loss=accept_loss)


def join_cluster(
    services: Services, files: MemberFiles, observe: Observer, native_address: str
) -> Services:
    """Return the services with replication in a cluster. Raises `StorageError`."""
    settings = services.settings
    elects: Callable[[ClusterMember], Election] = ManualPromotion
    # Real time, as with etcd, even where a test moves the broker's clock: that does not make
    # networks and other brokers faster.
    seconds = SystemClock.monotonic
    if settings.cluster_etcd:
        from .etcd.election import by_etcd

        elects, seconds = by_etcd(settings), boot_time_s
    if settings.cluster_address != LISTENS:
        native_address = settings.cluster_address
    cluster = Cluster(
        services,
        files,
        observe,
        native_address=native_address,
        random=SystemRandom(),
        seconds=seconds,
        elects=elects,
    )
    services.creations.allowed = lambda: cluster.leads
    return replace(services, replication=cluster)
