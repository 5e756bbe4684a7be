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
"""No etcd cluster has more members."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)

NOT_FOLLOWING: Final = "nobody"
"""Value of `cluster.follow` for a broker that leads, or that is a single broker."""

LISTENS: Final = "listen"
"""Value of `cluster.address` for a broker that other brokers reach at its `listen` address."""


def etcd_endpoints(text: str) -> tuple[str, ...]:
    """Return the addresses of etcd's members, separated by commas in `text`; none if it is empty.
    Raises `ValueError`."""
    each = text.split(",") if text.strip() else []
    if len(each) > ENDPOINTS_MAX:
        raise ValueError(f"are {len(each)}")
    return tuple(_endpoint(one.strip()) for one in each)


def _endpoint(text: str) -> str:
    from urllib.parse import urlsplit  # Most brokers start without it.

    parts = urlsplit(text)
    usable = parts.scheme in ("http", "https") and parts.hostname and parts.port
    if not usable or parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"{without_login(text)[:100]!r} is none")
    return f"{parts.scheme}://{parts.netloc}"


def check_cluster_name(text: str) -> None:
    """Raise `ValueError` unless the text may be a cluster's name, or is empty."""
    if text and not _NAME.fullmatch(text):
        raise ValueError("are other characters or too many")


CLUSTER: Final = (
    _integer(
        "broker.id",
        0,
        "",
        "Number of this broker in its cluster, from 1 to 999, different for each member. 0: a "
        "single broker without a cluster.",
        minimum=0,
        maximum=999,
    ),
    _setting(
        "cluster.follow",
        Kind.ADDRESS,
        NOT_FOLLOWING,
        "Address of the native protocol of the leader; this broker copies all its data. If there "
        "are several addresses, each with tls:// if needed, they are tried in turn, also after "
        "the leader was lost, and the first that leads is followed. `nobody`: etcd decides, or "
        "this broker leads if it led last and the others confirm it.",
        choices=(NOT_FOLLOWING,),
    ),
    _setting(
        "cluster.etcd",
        Kind.TEXT,
        "",
        "Addresses of etcd, 3.4 or later (--etcd), which decides who leads. Empty: operators "
        "decide.",
        reads=etcd_endpoints,
        form=ENDPOINTS_FORM,
    ),
    _setting(
        "cluster.name",
        Kind.TEXT,
        "",
        "Name of the cluster in etcd, the same for all its brokers (--cluster).",
        reads=check_cluster_name,
        form=NAME_FORM,
    ),
    _setting(
        "cluster.address",
        Kind.ADDRESS,
        LISTENS,
        "Address of the native protocol at which other brokers, and clients redirected by them, "
        "reach this broker. By default it is the first address of `listen`, with the name of this "
        "machine in place of 0.0.0.0. Exactly one address.",
        choices=(LISTENS,),
        one_address=True,
    ),
    _integer(
        "cluster.lease.ms",
        6_000,
        "ms",
        "How long a leader still leads after its last contact with etcd; no other broker leads "
        "before that time is over. Rounded down to whole seconds. The same for all brokers.",
        minimum=2_000,
        maximum=60_000,
    ),
    _setting(
        "cluster.unclean.leader.election.enable",
        Kind.BOOLEAN,
        False,
        "With etcd: whether a broker that is not in sync may lead, if no broker in sync was "
        "reachable for the time of a lease. Acknowledged messages may be lost.",
    ),
    _setting(
        "cluster.etcd.credentials",
        Kind.PATH,
        "",
        "File with an etcd user on its first line and the password on its second.",
        choices=("",),
    ),
    _setting(
        "cluster.etcd.ca",
        Kind.PATH,
        "",
        "Certificates of the authorities that may sign etcd's certificate at https://. If it is "
        "not set, those that the system trusts.",
        choices=("",),
    ),
    _setting(
        "cluster.etcd.cert",
        Kind.PATH,
        "",
        "Certificate of this broker, for an etcd that requires client certificates "
        "(--client-cert-auth).",
        choices=("",),
    ),
    _setting(
        "cluster.etcd.key",
        Kind.PATH,
        "",
        "Private key of `cluster.etcd.cert`, if it is not in the same file.",
        choices=("",),
    ),
    _setting(
        "cluster.credentials",
        Kind.PATH,
        "",
        "File with a user on its first line and the password on its second, with which a follower "
        "logs in at a leader that requires it. If authorization is on, the user needs "
        "ClusterAction on the cluster.",
        choices=("",),
    ),
    _setting(
        "cluster.ca",
        Kind.PATH,
        "",
        "Certificates of the authorities that may sign the certificate of a leader at a tls:// "
        "address. If it is not set, those that the system trusts.",
        choices=("",),
    ),
    _integer(
        "cluster.brokers",
        2,
        "",
        "Number of brokers in the cluster, the same for all of them. A leader that starts again "
        "waits until all others have confirmed that none was promoted meanwhile. Not used with "
        "etcd.",
        maximum=5,
    ),
    _setting(
        "cluster.create",
        Kind.BOOLEAN,
        False,
        "Let this broker lead at its first start with broker.id (--create-cluster): the others "
        "copy its data. Later starts ignore it.",
    ),
    _setting(
        "cluster.alone",
        Kind.BOOLEAN,
        False,
        "Let this broker lead from its start without an answer from the others (--alone). If "
        "another broker was promoted meanwhile, each has messages that the other lacks. Use it "
        "for one start, when it is known that none was promoted.",
    ),
    _setting(
        "cluster.discard",
        Kind.BOOLEAN,
        False,
        "Let a broker follow although its directory has messages of another cluster, or of none "
        "(--discard). They are moved into a folder set-aside-TIME in the data directory, never "
        "deleted. Use it for one start.",
    ),
    _integer(
        "replica.lag.time.max.ms",
        10_000,
        "ms",
        "A follower that has not reached the leader's log end for this long is out of sync: "
        "acks=all no longer waits for it. A follower that hears nothing from its leader for this "
        "long connects again.",
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
"""Settings that have no effect without `broker.id`, whatever else is given."""
