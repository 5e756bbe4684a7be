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
        "Shortest session timeout that a group member may request. Shorter timeouts detect a lost "
        "member sooner, but cost more heartbeats.",
        maximum=INT32_MAX,
    ),
    integer(
        "group.max.session.timeout.ms",
        1_800_000,
        "ms",
        "Longest session timeout that a group member may request.",
        maximum=INT32_MAX,
    ),
    integer(
        "group.initial.rebalance.delay.ms",
        0,
        "ms",
        "How long the first members of a group wait for others before partitions are assigned. "
        "The wait is extended while further members join, up to their rebalance timeout.",
        minimum=0,
        maximum=INT32_MAX,
    ),
    integer(
        "group.max.size",
        1000,
        "",
        "Maximum number of members in a group.",
        maximum=10_000,
    ),
    integer(
        "group.max.bytes",
        8 * 2**20,
        "bytes",
        "Memory for the members of one group: their metadata and assignments, and about 1 KB for "
        "each member. The group leader gets all metadata in one answer.",
        minimum=1024,
        maximum=INT32_MAX,
    ),
    integer(
        "max.groups",
        10_000,
        "",
        "Maximum number of groups with members. Positions under other names do not count. A "
        "logged-in user may start at most four times as many groups as remain free, an address "
        "eight times.",
        maximum=1_000_000,
    ),
    integer(
        "max.groups.bytes",
        128 * 2**20,
        "bytes",
        "Memory for the members of all groups together. The members of a logged-in user may use "
        "at most four times what remains free, those of an address eight times.",
        minimum=1024,
    ),
    integer(
        "offsets.retention.minutes",
        10_080,
        "minutes",
        "How long the positions of a group are kept after its last commit and its last member, "
        "unless the commit states a time. Positions committed with the native protocol are kept "
        "for ever.",
        maximum=INT32_MAX,
    ),
    integer(
        "offsets.retention.check.interval.ms",
        600_000,
        "ms",
        "Time between two checks for expired positions and for unused groups.",
    ),
)

AS_REACHED: Final = "as-reached"

FLUSH_SCHEDULER_INTERVAL: Final = "log.flush.scheduler.interval.ms"


_PLACES: Final = (
    _setting(
        "data.dir",
        Kind.PATH,
        "horolog-data",
        "Directory of all data, used by one broker at a time. It is created if it is missing.",
        aliases=("log.dir",),
    ),
    _setting(
        "data.file.mode",
        Kind.FILE_MODE,
        "0600",
        "Permissions of the files that the broker creates, in octal. An account that may read the "
        "files may also enter the folders (0640: 0750). With 0600 only the broker's own account "
        'can read messages; "0640" lets its group read them, for example Spark jobs with '
        "segments.path. A umask removes further permissions. A start removes permissions beyond "
        "this from existing partition folders and data files, but adds none: use chmod -R g+rX "
        "for existing files.",
    ),
    _integer(
        "disk.reserve.bytes",
        4 << 20,
        "bytes",
        "Size of the file disk-reserve in the data directory. The broker gives up this space when "
        "the disk is full, so that topics can still be deleted, trimmed and altered, retention "
        "works, and a stop is clean. It is created only if the disk has twice as much free space. "
        "0: no reserve.",
        minimum=0,
        maximum=1 << 30,
    ),
    _setting(
        "listen",
        Kind.ADDRESS,
        "127.0.0.1:7070",
        "Address of the native protocol, or several, for example one on loopback for internal use "
        "and one with tls:// for external use. Port 0 uses any free port; [::]:7070 listens on "
        "all interfaces. A bare address is not encrypted, tls:// is; for both, `authentication` "
        "decides whether a login is required. Kafka's PLAINTEXT://, SSL://, SASL_PLAINTEXT:// and "
        "SASL_SSL:// determine both. An address that is not loopback needs encryption and a "
        "login, or allow.plaintext.",
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
        "Host names, separated by commas, to which the HTTP port answers in addition to IP "
        "addresses and localhost: the name by which Prometheus or a browser reaches it. Requests "
        "with another Host are refused, because the owner of that name could use a visitor's "
        "browser to read the answers (DNS rebinding).",
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
        "The broker address given to Kafka clients, if it differs from the address at which they "
        "reached the broker, for example behind a forwarded port. Either one address for all of "
        "kafka.listen, or one for each kind of listener, with the same tls:// or Kafka scheme.",
        choices=(AS_REACHED,),
        plaintext_says_nothing=True,
    ),
)

_TOPICS: Final = (
    _setting(
        "auto.create.topics.enable",
        Kind.BOOLEAN,
        True,
        "Whether a produce or metadata request for a topic that does not exist creates it.",
    ),
    _integer(
        "num.partitions",
        1,
        "",
        "Number of partitions of a topic that is created without a partition count.",
        maximum=100_000,
    ),
    _integer(
        "max.topics",
        5000,
        "",
        "Maximum number of topics on this broker. Each topic costs memory and start-up time even "
        "when idle.",
        maximum=1_000_000,
    ),
    _integer(
        "max.partitions",
        10_000,
        "",
        "Maximum number of partitions on this broker, over all topics. Each is a folder with open "
        "files.",
        maximum=1_000_000,
    ),
    _integer(
        "offset.metadata.max.bytes",
        4096,
        "bytes",
        "Longest metadata text that may be stored with a committed position.",
        minimum=0,
        maximum=INT32_MAX,
    ),
    _integer(
        "max.positions.bytes",
        256 * 2**20,
        "bytes",
        "Memory for all stored positions: 160 bytes plus the text for each position, 128 bytes "
        "plus the topic's name in addition for a position in a window, 400 bytes plus the name for "
        "each group or consumer name. A commit beyond the limit is refused, unless it makes "
        "nothing larger.",
        minimum=1024,
    ),
    _integer(
        "max.producer.states.bytes",
        256 * 2**20,
        "bytes",
        "Memory for the state of idempotent producers in all partitions: 250 bytes for each "
        "producer in each partition that it writes to, 220 for each of its last five batches. "
        "When the limit is reached, producers that were silent for five minutes are forgotten. If "
        "there are none, a producer that a partition does not know yet is refused.",
        minimum=1024,
    ),
)

_TASKS: Final = (
    _integer(
        "log.retention.check.interval.ms",
        300_000,
        "ms",
        "Time between two passes of retention, which also close idle segments.",
    ),
    _integer(
        "log.scrub.days",
        7,
        "days",
        "Number of days in which the broker reads and checks all stored data once, slowly (1 to "
        "16 MiB per second). Bytes that changed on the disk are thus found while another broker "
        "still has a good copy. 0: never.",
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
        "Difference between the movement of the wall clock and of the monotonic clock that counts "
        "as a step, and the maximum by which retention by time may be ahead of the monotonic "
        "clock. Set it well above leap seconds and above the corrections that time servers make "
        "within clock.settle.ms without a step.",
        minimum=1000,
    ),
    _integer(
        "clock.settle.ms",
        3_600_000,
        "ms",
        "How long the wall clock has to run evenly after a step before retention by time uses it "
        "again: time for an operator to notice and correct a wrong clock. After a start, a time "
        "later than the last use of the data also counts as a step. 0 trusts every step at once.",
        minimum=0,
    ),
    _integer(
        FLUSH_SCHEDULER_INTERVAL,
        1000,
        "ms",
        "How often the broker checks for logs whose flush.ms has expired. Setting it also sets "
        "the default of flush.ms, as in Kafka.",
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
        "Minimum time between two writes of the recovery points after syncs. With a shorter time, "
        "a start after a crash has less to scan.",
    ),
)

_LIMITS: Final = (
    _integer(
        "max.frame.bytes",
        100 * 2**20,
        "bytes",
        "Largest request. A longer one is refused because of its length field, before any of it "
        "is read. Before a required login the limit is 64 KiB.",
        minimum=1024,
        maximum=INT32_MAX,
        aliases=("socket.request.max.bytes",),
    ),
    _integer(
        "max.response.bytes",
        55 * 2**20,
        "bytes",
        "Maximum number of message bytes in one fetch answer, whatever the request asks for. A "
        "first message larger than this is still sent whole.",
        minimum=1024,
        maximum=INT32_MAX,
        aliases=("fetch.max.bytes",),
    ),
    _integer(
        "max.connections",
        1000,
        "",
        "Maximum number of connections at the same time. Further ones are closed at once and "
        "counted. Each needs a file descriptor in addition to those of max.open.files. The HTTP "
        "port has its own limit of 200.",
        maximum=1_000_000,
    ),
    _integer(
        "max.connections.per.ip",
        0,
        "",
        "Maximum number of connections from one address at the same time. Further ones are closed "
        "at once and counted. 0: half of max.connections. The HTTP port counts its connections "
        "separately and accepts at most 100 from one address.",
        minimum=0,
        maximum=1_000_000,
    ),
    _integer(
        "connections.max.idle.ms",
        600_000,
        "ms",
        "How long a connection may be idle, with no request in progress and no unread answer, "
        "before it is closed. Clients reconnect when they need to. The HTTP port has its own "
        "limits: 10 s for the head of a request, 60 s between two requests.",
        minimum=1000,
        negative_is_off=True,
    ),
    _integer(
        "max.requests.in.flight",
        256,
        "",
        "Maximum number of requests of one connection that wait for their answer. At the limit "
        "the broker stops reading from that connection. Of requests that need more than 64 KiB, "
        "for the request or its answer, at most five per connection are handled at the same time.",
        maximum=1_000_000,
    ),
    _integer(
        "request.deadline.ms",
        30_000,
        "ms",
        "Maximum time from the first byte of a request to its last. If a request takes longer, "
        "its connection is closed; so is a connection whose client reads nothing of an answer for "
        "as long.",
    ),
    _integer(
        "fetch.max.wait.ms",
        60_000,
        "ms",
        "Maximum time that a fetch may wait for data, whatever the request asks for.",
        minimum=0,
    ),
    _integer(
        "connection.buffer.bytes",
        16 * 2**20,
        "bytes",
        "Maximum number of bytes of unread answers for one connection. Above it, no further "
        "request of that connection is handled; if its client still does not read, the connection "
        "is closed.",
        minimum=1024,
        maximum=INT32_MAX,
    ),
    _integer(
        "socket.send.buffer.bytes",
        -1,
        "bytes",
        "SO_SNDBUF of the sockets of connections: how many bytes of answers the system holds "
        "while they are sent. -1 leaves it to the system. A client gets at most about twice as "
        "much in one round trip. If congestion control is BBR, 256 KiB makes answers of many MiB "
        "faster for clients on the same machine, and small answers slower.",
        minimum=-1,
        maximum=INT32_MAX,
    ),
    _integer(
        "max.buffered.bytes",
        256 * 2**20,
        "bytes",
        "Memory for all connections together: unread answers, waiting requests, large incomplete "
        "requests, and requests in progress with their answers. Above the limit, the clients that "
        "have left answers unread for the longest time are disconnected. Requests in progress get "
        "at most half of it. A request without room waits; clients get their turn by address. "
        "With this limit, clients cannot make the broker use more memory than it has.",
        minimum=2**20,
    ),
    _integer(
        "index.cache.bytes",
        32 * 2**20,
        "",
        "Memory for the indexes and time maps of closed segments, which are read from their files "
        "when needed; the least recently used are dropped first. Indexes of up to 512 bytes, and "
        "those of segments that take appends, stay in memory in addition.",
        minimum=2**16,
    ),
    _integer(
        "max.open.files",
        10_000,
        "",
        "Maximum number of open segment and index files. The least recently used are closed "
        "first. A search or a fetch in a file that is not open takes longer, because the file has "
        "to be opened. The process limit (ulimit -n) must leave room for max.connections and 232 "
        "more; with a lower limit, less of each is used.",
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
        "Format of the broker's log on standard error: readable text, or one JSON object per line.",
        choices=("console", "json"),
    ),
    _setting(
        "log.level",
        Kind.CHOICE,
        "info",
        "The lowest level of events that are logged.",
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
"""Kafka's broker settings that do not exist in Horolog: name -> reason, as the end
of a sentence."""
