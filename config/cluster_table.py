"""The settings of a broker that is one of several."""

from typing import Final

from .declaring import integer as _integer
from .declaring import setting as _setting
from .setting import Kind

NOBODY: Final = "nobody"
"""`cluster.follow` of a broker that is to lead, or is alone."""

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
        NOBODY,
        "Address of the native protocol of the broker that leads; this one copies all that it has. "
        "`nobody`: this one leads, if it led last.",
        choices=(NOBODY,),
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
        "for the word of all others that nobody was promoted meanwhile.",
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
        "Let this broker lead from its start on without hearing the others (--alone). Whoever was "
        "promoted meanwhile has messages that it lacks, and the other way round: for one start, "
        "when that is known not to be so.",
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
        "does not wait for it any more.",
        minimum=100,
        maximum=3_600_000,
    ),
)
