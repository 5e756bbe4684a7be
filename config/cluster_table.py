"""The settings of a cluster member, and how etcd and a cluster in it are named."""

import re
from typing import Final

from .address import without_login
from .setting import Kind
from .setting import integer as _integer
from .setting import setting as _setting

ENDPOINTS_FORM: Final = (
    "up to nine of http://HOST:PORT or https://HOST:PORT separated by commas, or empty"
)
NAME_FORM: Final = "letters, digits, '.', '_' and '-', 1 to 100 of them, or empty"

ENDPOINTS_MAX: Final = 9
"""More members than an etcd cluster has."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)

NOT_FOLLOWING: Final = "nobody"
"""`cluster.follow` of a broker that is to lead, or is alone."""

LISTENS: Final = "listen"
"""`cluster.address` of a broker that is found where it listens."""


def etcd_endpoints(text: str) -> tuple[str, ...]:
    """Addresses of etcd's members, separated by commas; empty: none. Raises `ValueError`."""
    each = text.split(",") if text.strip() else []
    if len(each) > ENDPOINTS_MAX:
        raise ValueError(f"are {len(each)}")
    return tuple(_endpoint(one.strip()) for one in each)


def _endpoint(text: str) -> str:
    from urllib.parse import urlsplit  # most brokers start without

    parts = urlsplit(text)
    usable = parts.scheme in ("http", "https") and parts.hostname and parts.port
    if not usable or parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"{without_login(text)[:100]!r} is none")
    return f"{parts.scheme}://{parts.netloc}"


def check_cluster_name(text: str) -> None:
    """Raises `ValueError`."""
    if text and not _NAME.fullmatch(text):
        raise ValueError("are other characters or too many")


CLUSTER: Final = (
    _integer(
        "broker.id",
        0,
        "",
        "Number of this broker among those that have the same data: 1 to 999, each its own. 0 is a "
        "broker that is alone.",
        minimum=0,
        maximum=999,
    ),
    _setting(
        "cluster.follow",
        Kind.ADDRESS,
        NOT_FOLLOWING,
        "Address of the native protocol of the broker that leads; this one copies all that it has. "
        "Of several, each behind tls:// where it needs it, the first that leads is followed: they "
        "are tried in turn, and again after the leader was lost. `nobody`: etcd decides, or this "
        "one leads if it led last and the others confirm it.",
        choices=(NOT_FOLLOWING,),
    ),
    _setting(
        "cluster.etcd",
        Kind.TEXT,
        "",
        "Addresses of etcd, 3.4 or later (--etcd): it decides who leads. Empty: people do.",
        reads=etcd_endpoints,
        form=ENDPOINTS_FORM,
    ),
    _setting(
        "cluster.name",
        Kind.TEXT,
        "",
        "Name of the cluster in etcd, the same for all of its brokers (--cluster).",
        reads=check_cluster_name,
        form=NAME_FORM,
    ),
    _setting(
        "cluster.address",
        Kind.ADDRESS,
        LISTENS,
        "Address of the native protocol where the other brokers, and clients that they send here, "
        "find this one, if it is another than `listen`, whose first is taken otherwise; in place "
        "of 0.0.0.0 with the name of this machine. One address: a broker is found at one place.",
        choices=(LISTENS,),
        one_address=True,
    ),
    _integer(
        "cluster.lease.ms",
        6_000,
        "ms",
        "How long a leader still leads after its last contact with etcd; no other broker leads "
        "before that. In whole seconds, rounded down. The same for all brokers.",
        minimum=2_000,
        maximum=60_000,
    ),
    _setting(
        "cluster.unclean.leader.election.enable",
        Kind.BOOLEAN,
        False,
        "With etcd: let a broker lead that is not in sync, when no broker in sync was reachable "
        "for as long as a lease. Messages that were answered may be lost.",
    ),
    _setting(
        "cluster.etcd.credentials",
        Kind.PATH,
        "",
        "File with a user of etcd on its first line and the password on its second.",
        choices=("",),
    ),
    _setting(
        "cluster.etcd.ca",
        Kind.PATH,
        "",
        "Certificates that etcd's, at https://, is to be signed by; without it those that the "
        "system trusts.",
        choices=("",),
    ),
    _setting(
        "cluster.etcd.cert",
        Kind.PATH,
        "",
        "Certificate of this broker for an etcd that asks for one (--client-cert-auth).",
        choices=("",),
    ),
    _setting(
        "cluster.etcd.key",
        Kind.PATH,
        "",
        "Private key of `cluster.etcd.cert`, where it is not in the same file.",
        choices=("",),
    ),
    _setting(
        "cluster.credentials",
        Kind.PATH,
        "",
        "File with a user on its first line and the password on its second: how a follower logs in "
        "at a leader that asks for it. The user needs ClusterAction on the cluster where "
        "authorization is on.",
        choices=("",),
    ),
    _setting(
        "cluster.ca",
        Kind.PATH,
        "",
        "Certificates that a leader's, at an address with tls://, is to be signed by; without it "
        "those that the system trusts.",
        choices=("",),
    ),
    _integer(
        "cluster.brokers",
        2,
        "",
        "How many brokers there are. The same for all of them: a leader that starts again waits "
        "until all others have confirmed that none was promoted meanwhile. Not used with etcd.",
        maximum=5,
    ),
    _setting(
        "cluster.create",
        Kind.BOOLEAN,
        False,
        "Let this broker lead at its first start with broker.id (--create-cluster): its data is "
        "what the others copy. Later starts do not look at it.",
    ),
    _setting(
        "cluster.alone",
        Kind.BOOLEAN,
        False,
        "Let this broker lead from its start on without an answer of the others (--alone). A "
        "broker promoted meanwhile has messages that it lacks, and the other way round: for one "
        "start, when that is known not to be so.",
    ),
    _setting(
        "cluster.discard",
        Kind.BOOLEAN,
        False,
        "Let a broker follow whose directory has messages of another cluster, or of none "
        "(--discard): they are moved into a folder set-aside-TIME in the data directory, and never "
        "deleted. For one start.",
    ),
    _integer(
        "replica.lag.time.max.ms",
        10_000,
        "ms",
        "A follower that has not been at the leader's end for so long is out of sync: acks=all "
        "does not wait for it any more. A follower waits as long for its leader before it connects "
        "again.",
        minimum=100,
        maximum=3_600_000,
    ),
)

OF_SEVERAL: Final = (
    "cluster.follow",
    "cluster.etcd",
    "cluster.name",
    "cluster.create",
    "cluster.alone",
)
"""Those that make no sense without `broker.id`, whatever else is given."""
