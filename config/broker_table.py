"""Every setting of the broker itself, declared once."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .cluster_table import CLUSTER
from .security_table import ACCESS, SECURITY
from .setting import INT32_MAX, Kind, Setting, integer
from .setting import integer as _integer
from .setting import setting as _setting

GROUPS: Final = (
    integer(
        "group.min.session.timeout.ms",
        6000,
        "ms",
        "Shortest session timeout that a member of a group may ask for: shorter ones find out "
        "sooner that a member is lost, and cost more heartbeats.",
        maximum=INT32_MAX,
    ),
    integer(
        "group.max.session.timeout.ms",
        1_800_000,
        "ms",
        "Longest session timeout that a member of a group may ask for.",
        maximum=INT32_MAX,
    ),
    integer(
        "group.initial.rebalance.delay.ms",
        0,
        "ms",
        "How long the first members of a group wait for others before they share out the work, "
        "and again as long as others come, up to their rebalance timeout.",
        minimum=0,
        maximum=INT32_MAX,
    ),
    integer(
        "group.max.size",
        1000,
        "",
        "Members that a group may have.",
        maximum=10_000,
    ),
    integer(
        "group.max.bytes",
        8 * 2**20,
        "bytes",
        "Memory for the members of one group: their metadata and assignments, and about 1 KB for "
        "each. The leader gets all metadata in one answer.",
        minimum=1024,
        maximum=INT32_MAX,
    ),
    integer(
        "max.groups",
        10_000,
        "",
        "Groups that have members. Positions under other names do not count. A user who logged in "
        "may begin at most four times as many as stay free, an address eight times.",
        maximum=1_000_000,
    ),
    integer(
        "max.groups.bytes",
        128 * 2**20,
        "bytes",
        "Memory for the members of all groups together. Those of a user who logged in may take at "
        "most four times what stays free, those of an address eight times.",
        minimum=1024,
    ),
    integer(
        "offsets.retention.minutes",
        10_080,
        "minutes",
        "How long the positions of a group are kept after its last commit and its last member, "
        "unless the commit says how long. Positions that were committed with the native protocol "
        "are kept for ever.",
        maximum=INT32_MAX,
    ),
    integer(
        "offsets.retention.check.interval.ms",
        600_000,
        "ms",
        "Time between two looks for positions that have expired.",
    ),
)

AS_REACHED: Final = "as-reached"

FLUSH_SCHEDULER_INTERVAL: Final = "log.flush.scheduler.interval.ms"


_PLACES: Final = (
    _setting(
        "data.dir",
        Kind.PATH,
        "horolog-data",
        "Directory of all data. One broker at a time; it is created when it is missing.",
        aliases=("log.dir",),
    ),
    _setting(
        "data.file.mode",
        Kind.FILE_MODE,
        "0600",
        "Permissions of the files that the broker makes, in octal; its folders may be entered by "
        "accounts that may read its files (0640: 0750). With 0600 only the broker's own one reads "
        'messages; "0640" lets its group, for example Spark jobs with segments.path. A umask takes '
        "away more. A start takes from the folders of partitions and the files beside them what "
        "goes beyond it, and gives nothing: chmod -R g+rX does, for what is there.",
    ),
    _integer(
        "disk.reserve.bytes",
        4 << 20,
        "bytes",
        "Size of the file disk-reserve in the data directory: room that is given up when the disk "
        "is full, so that topics can be deleted, trimmed and altered, retention works, and a stop "
        "is clean. It is made only where the disk has twice as much room. 0 keeps none.",
        minimum=0,
        maximum=1 << 30,
    ),
    _setting(
        "listen",
        Kind.ADDRESS,
        "127.0.0.1:7070",
        "Address of the native protocol, or several: an inner one on loopback, and an outer one "
        "with tls:// for example. Port 0 takes a free one; [::]:7070 listens everywhere. A bare "
        "address is not encrypted, and tls:// is; for both, authentication says whether a login is "
        "required. Kafka's PLAINTEXT://, SSL://, SASL_PLAINTEXT:// and SASL_SSL:// say it "
        "themselves. An address that is not loopback has to have both, or allow.plaintext.",
    ),
    _setting(
        "http.listen",
        Kind.ADDRESS,
        "127.0.0.1:7071",
        "Address of the HTTP port with /metrics, or several, as in listen, or `off`.",
        choices=("off",),
    ),
    _setting(
        "http.hosts",
        Kind.HOSTS,
        "",
        "Names, separated by commas, under which the HTTP port answers, beside addresses and "
        "localhost: the name by which Prometheus or a browser reaches it. Requests whose Host is "
        "another name are refused, because the owner of that name could let a visitor's browser "
        "read them (DNS rebinding).",
    ),
    _setting(
        "kafka.listen",
        Kind.ADDRESS,
        "127.0.0.1:9092",
        "Address of Kafka's protocol, or several, as in listen, or `off`.",
        choices=("off",),
    ),
    _setting(
        "advertised.listeners",
        Kind.ADDRESS,
        AS_REACHED,
        "The address of the broker that Kafka's clients get, when that is not the address at which "
        "they have reached it: behind a forwarded port, for example. One address for all of "
        "kafka.listen, or one for each kind of them, behind the same tls:// or name of Kafka's.",
        choices=(AS_REACHED,),
        plaintext_says_nothing=True,
    ),
)

_TOPICS: Final = (
    _setting(
        "auto.create.topics.enable",
        Kind.BOOLEAN,
        True,
        "Whether producing to, or asking about, a topic that does not exist creates it.",
    ),
    _integer(
        "num.partitions",
        1,
        "",
        "Partitions of a topic that is created without saying how many.",
        maximum=100_000,
    ),
    _integer(
        "max.topics",
        5000,
        "",
        "Topics this broker may hold. Each one costs memory and start-up time even when idle.",
        maximum=1_000_000,
    ),
    _integer(
        "max.partitions",
        10_000,
        "",
        "Partitions this broker may hold, over all topics: each is a folder with open files.",
        maximum=1_000_000,
    ),
    _integer(
        "offset.metadata.max.bytes",
        4096,
        "bytes",
        "Longest text that may be stored beside a position.",
        minimum=0,
        maximum=INT32_MAX,
    ),
    _integer(
        "max.positions.bytes",
        256 * 2**20,
        "bytes",
        "Memory for all stored positions: 160 bytes and the text for each, 400 bytes and the name "
        "for each name. A commit that would pass it is refused, unless it makes nothing larger.",
        minimum=1024,
    ),
    _integer(
        "max.producer.states.bytes",
        256 * 2**20,
        "bytes",
        "Memory for what all partitions remember of idempotent producers: 250 bytes for each "
        "producer in each partition that it writes to, 220 for each of its last five batches. When "
        "it is used up, producers that were silent for five minutes are forgotten; without such, "
        "one that a partition does not know yet is refused.",
        minimum=1024,
    ),
)

_TASKS: Final = (
    _integer(
        "log.retention.check.interval.ms",
        300_000,
        "ms",
        "Time between two passes of retention and of rolling idle segments.",
    ),
    _integer(
        "log.scrub.days",
        7,
        "days",
        "Within so many days the broker reads all that is stored once, slowly (1 to 16 MiB a "
        "second), and checks it: bytes that changed on the disk are found while another broker "
        "still has good ones. 0: never.",
        minimum=0,
    ),
    _integer(
        "log.initial.task.delay.ms",
        30_000,
        "ms",
        "Time from the start to the first pass of retention.",
        minimum=0,
    ),
    _integer(
        "clock.step.max.ms",
        60_000,
        "ms",
        "How far the wall clock may move otherwise than the monotonic one before that counts as a "
        "step, and how far retention by time may get ahead of the latter. Well above leap seconds "
        "and what time servers correct in clock.settle.ms without a step.",
        minimum=1000,
    ),
    _integer(
        "clock.settle.ms",
        3_600_000,
        "ms",
        "How long the wall clock has to keep pace after a step before retention by time goes by it "
        "again: time for an operator to see a wrong one and take it back. After a start, a time "
        "ahead of the last use of the data counts as a step too. 0 believes every step.",
        minimum=0,
    ),
    _integer(
        FLUSH_SCHEDULER_INTERVAL,
        1000,
        "ms",
        "How often the broker looks for logs whose flush.ms is over. Setting it also sets the "
        "default of flush.ms, as in Kafka.",
    ),
    _integer(
        "checkpoint.interval.ms",
        60_000,
        "ms",
        "Time between two writes of the checkpoints of all logs.",
        aliases=("log.flush.offset.checkpoint.interval.ms",),
    ),
    _integer(
        "recovery.point.checkpoint.interval.ms",
        1000,
        "ms",
        "Shortest time between two writes of the recovery points after syncs. Shorter makes the "
        "start after a crash scan less.",
    ),
)

_LIMITS: Final = (
    _integer(
        "max.frame.bytes",
        100 * 2**20,
        "bytes",
        "Largest request. A longer one is refused by its length field, before any of it is read. "
        "Before a login that is required: 64 KiB.",
        minimum=1024,
        maximum=INT32_MAX,
        aliases=("socket.request.max.bytes",),
    ),
    _integer(
        "max.response.bytes",
        55 * 2**20,
        "bytes",
        "Most message bytes in one fetch answer, whatever the request asks for. A first message "
        "larger than this is still sent whole.",
        minimum=1024,
        maximum=INT32_MAX,
        aliases=("fetch.max.bytes",),
    ),
    _integer(
        "max.connections",
        1000,
        "",
        "Connections at one time; the ones above it are closed at once and counted. Each needs a "
        "file descriptor, beside those of max.open.files. The HTTP port has 200 of its own.",
        maximum=1_000_000,
    ),
    _integer(
        "max.connections.per.ip",
        0,
        "",
        "Connections at one time from one address; the ones above it are closed at once and "
        "counted. 0: half of max.connections. The HTTP port counts its own, and takes at most 100 "
        "from one address.",
        minimum=0,
        maximum=1_000_000,
    ),
    _integer(
        "connections.max.idle.ms",
        600_000,
        "ms",
        "How long a connection may be idle, with no request under way and no answer to be read, "
        "before it is closed. Clients connect again when they need to. The HTTP port has its own "
        "times: 10 s for the head of a request, 60 s between two.",
        minimum=1000,
        negative_is_off=True,
    ),
    _integer(
        "max.requests.in.flight",
        256,
        "",
        "Requests of one connection that wait for their answer; when it is reached the broker "
        "stops reading from that connection. Of requests that take more than 64 KiB, read or as an "
        "answer, it works on at most five of a connection at a time.",
        maximum=1_000_000,
    ),
    _integer(
        "request.deadline.ms",
        30_000,
        "ms",
        "Time from the first byte of a request to its last. A half-sent request that takes longer "
        "closes the connection, and so does an answer of which nothing is taken for as long.",
    ),
    _integer(
        "fetch.max.wait.ms",
        60_000,
        "ms",
        "Longest time that a fetch may wait for data, whatever the request asks for.",
        minimum=0,
    ),
    _integer(
        "connection.buffer.bytes",
        16 * 2**20,
        "bytes",
        "Answers buffered for one connection whose client does not read. Above it no further "
        "request is handled, and a client that goes on not reading is closed.",
        minimum=1024,
        maximum=INT32_MAX,
    ),
    _integer(
        "socket.send.buffer.bytes",
        -1,
        "bytes",
        "SO_SNDBUF of the sockets of connections: what the system holds of answers on their way; "
        "-1 leaves it to the system. A client gets about twice as much in a round trip at most. "
        "Where congestion control is BBR, clients on the same machine get answers of many MiB "
        "faster with 256 KiB, and small ones slower.",
        minimum=-1,
        maximum=INT32_MAX,
    ),
    _integer(
        "max.buffered.bytes",
        256 * 2**20,
        "bytes",
        "Unread answers, requests that wait, large unfinished ones, and what requests take with "
        "their answers while the broker works on them, of all connections together. Above it the "
        "clients that have left theirs for the longest time are closed. Work gets at most half of "
        "it; a request for which there is no room waits, and clients in turn by their addresses. "
        "With it, clients cannot make the broker take more memory than it has.",
        minimum=2**20,
    ),
    _integer(
        "index.cache.bytes",
        32 * 2**20,
        "",
        "What is kept in memory of the indexes and time maps of closed segments, which are read "
        "where they lie; the least recently used goes first. Indexes of up to 512 bytes, and those "
        "of segments that take appends, stay in memory beside it.",
        minimum=2**16,
    ),
    _integer(
        "max.open.files",
        10_000,
        "",
        "Segment and index files open at one time; the least recently used are closed first. A "
        "search or a fetch in a file that is not open takes longer by opening it. The process "
        "limit (ulimit -n) must leave room for max.connections and 232 more beside it; with a "
        "lower one, less of each is used.",
        minimum=16,
        maximum=1_000_000,
    ),
)

_OPERATION: Final = (
    _integer(
        "max.latency.window.ms",
        300_000,
        "ms",
        "Window over which horolog_max_latency_seconds shows the largest latency of a topic.",
        minimum=1000,
    ),
    _setting(
        "event.loop",
        Kind.CHOICE,
        "uvloop",
        "The event loop: uvloop, or the one of Python's own asyncio.",
        choices=("uvloop", "asyncio"),
    ),
    _setting(
        "log.format",
        Kind.CHOICE,
        "console",
        "How the broker writes its log to standard error: for people, or one JSON object a line.",
        choices=("console", "json"),
    ),
    _setting(
        "log.level",
        Kind.CHOICE,
        "info",
        "The least important events that are still logged.",
        choices=("debug", "info", "warning", "error"),
    ),
)

BROKER_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    {
        setting.name: setting
        for table in (
            *(_PLACES, SECURITY, ACCESS, _TOPICS, _TASKS, GROUPS, _LIMITS, _OPERATION),
            CLUSTER,
        )
        for setting in table
    }
)
"""Every broker setting by canonical name, in the order of the documentation."""

_NO_REPLICATION: Final = "belongs to Kafka's replication; a follower here copies everything"

_NO_CLEANER: Final = "belongs to a cleaner, and compacted topics are not cleaned yet"

BROKER_NAMES_NOT_OFFERED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "inter.broker.protocol.version": _NO_REPLICATION,
        "default.replication.factor": _NO_REPLICATION,
        "replica.fetch.max.bytes": _NO_REPLICATION,
        "replica.fetch.response.max.bytes": _NO_REPLICATION,
        "replica.fetch.min.bytes": _NO_REPLICATION,
        "replica.fetch.wait.max.ms": _NO_REPLICATION,
        "replica.high.watermark.checkpoint.interval.ms": _NO_REPLICATION,
        "zookeeper.connect": "belongs to ZooKeeper; brokers here are several by hand, or by etcd",
        "num.recovery.threads.per.data.dir": "has no counterpart: recovery uses one thread",
        "log.cleaner.enable": _NO_CLEANER,
        "log.cleaner.threads": _NO_CLEANER,
        "log.cleaner.dedupe.buffer.size": _NO_CLEANER,
        "log.cleaner.io.max.bytes.per.second": _NO_CLEANER,
        "log.dirs": "is Kafka's list; there is one directory here, data.dir",
        "listeners": "is Kafka's; the names here are listen, http.listen and kafka.listen",
    }
)
"""Kafka's broker settings that have no counterpart here: name -> why, as the end of a sentence."""
