"""A broker whose cluster is decided by etcd: its settings, checked against each other."""

from collections.abc import Callable

from ....config.broker import BrokerSettings
from ....config.cluster_table import NOT_FOLLOWING
from ....protocol.errors import InvalidConfig
from ..cluster import Cluster
from ..deciding import Decider
from .access import access_of
from .client import EtcdClient
from .deciding import ByEtcd
from .gateway import Gateway
from .store import ClusterStore


def check(settings: BrokerSettings) -> None:
    """Refuse settings that do not go together. Raises `InvalidConfig`."""
    if not settings.cluster_name:
        raise InvalidConfig(
            "cluster.etcd (--etcd) is given, and cluster.name (--cluster), the name of the cluster "
            "in etcd, is empty: give both"
        )
    if not settings.cluster_etcd:
        raise InvalidConfig(
            "cluster.name (--cluster) is given, and cluster.etcd (--etcd), where the cluster is "
            "kept, is empty: give both"
        )
    if settings.cluster_follow != NOT_FOLLOWING:
        raise InvalidConfig(
            f"cluster.follow (--follow) is {settings.cluster_follow}, and with cluster.etcd "
            "(--etcd) it is etcd that says who leads: give one of them"
        )
    if settings.cluster_alone:
        raise InvalidConfig(
            "cluster.alone (--alone) is for brokers without etcd; with it, "
            "`horolog cluster promote ID --accept-loss` lets a broker lead that may lack messages"
        )
    EtcdClient(access_of(settings))


def by_etcd(settings: BrokerSettings) -> Callable[[Cluster], Decider]:
    """What makes the decider, of settings that were checked. Raises `InvalidConfig`."""
    access = access_of(settings)

    def decides(cluster: Cluster) -> Decider:
        client = EtcdClient(access)
        return ByEtcd(cluster, client, ClusterStore(Gateway(client), settings.cluster_name))

    return decides
