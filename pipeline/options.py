"""The options of a read and of a write, checked before anything is read or written.

Options have the names of Spark's Kafka source where it has the same option. This module does not
need Spark.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import starmap
from typing import Final, Literal

from ..client.client import ReadFrom
from ..client.cluster.servers import Servers, parse_servers
from ..client.errors import SecurityError
from ..client.security import options as security
from ..client.security.security import Security
from ..config.address import check_no_login
from ..protocol.records.layout import Codec
from .logs import NO_LOGS, TopicLogs
from .option_values import (
    SENTINELS,
    ByPartition,
    OptionError,
    assignment,
    check_names,
    duration_ms,
    offsets,
    one_of,
    read_from,
    replaced_by,
    time_ms,
    times_by_partition,
    whole,
    yes_or_no,
)
from .planning import Window

SERVERS: Final = ("bootstrap.servers", "bootstrapServers", "kafka.bootstrap.servers")
"""Names of the option with the broker's address."""

_TOPICS: Final = ("subscribe", "subscribePattern", "assign")
_SIDES: Final = ("starting", "ending")

_KAFKA_PATIENCE: Final = {
    "fetchOffset.numRetries": 3,
    "fetchOffset.retryIntervalMs": 10,
    "kafkaConsumer.pollTimeoutMs": 0,
}
"""Retry options of Spark's Kafka source, with its defaults. They can lengthen our time-outs, but
not shorten them: a broker does not start again within 3 times 10 ms."""

SECURITY: Final = {given: name for name in security.NAMES for given in (name, f"kafka.{name}")}
"""Security options of the connection: each accepted name -> our name. Spark's Kafka source has the
names with the prefix `kafka.`."""

COMMON_NAMES: Final = (*SERVERS, *SECURITY, "retryBudgetMs", "requestTimeoutMs", "path")
READ_NAMES: Final = (
    *COMMON_NAMES,
    *_TOPICS,
    *(
        f"{side}{what}"
        for side in _SIDES
        for what in ("Timestamp", "OffsetsByTimestamp", "Offsets")
    ),
    "startingOffsetsByTimestampStrategy",
    "anyUnit",
    "timeRange",
    "maxOutOfOrderness",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxTimePerTrigger",
    "includeHeaders",
    "includeAppendTime",
    "idleWaitMs",
    "readFrom",
    "groupId",
    "segments.path",
    *_KAFKA_PATIENCE,
)

_DEFAULT_RETRY_MS: Final = 60_000
_DEFAULT_REQUEST_MS: Final = 30_000
_NO_SERVERS: Final = Servers(("",), kafka=False)
_LONGEST_IDLE_WAIT_MS: Final = 500
"""Limit of `idleWaitMs`: a query that is stopped has to wait until this time is over."""


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Address of the broker, security of the connection, and time-outs."""

    servers: Servers
    retry_budget_ms: int = _DEFAULT_RETRY_MS
    """How long a failed request is retried. Long enough for a broker to start again."""
    request_timeout_ms: int = _DEFAULT_REQUEST_MS

    @property
    def address(self) -> str:
        """The address as it is shown, without secrets."""
        return str(self.servers)


WRITE_NAMES: Final = (
    *COMMON_NAMES,
    "topic",
    "timestampColumn",
    "includeHeaders",
    "acks",
    "compression",
    "idempotent",
    "partitioner",
    "jobId",
    # Spark's own options, which it passes on to the sink.
    "checkpointLocation",
    "queryName",
    "outputMode",
)
_ACKS: Final = {"all": -1, "-1": -1, "1": 1}
_CODECS: Final = {codec.label: codec for codec in Codec}


class Partitioner(StrEnum):
    """How a row without a column `partition` gets its partition from its key."""

    MURMUR2 = "murmur2"
    """The choice of Kafka's Java client."""
    CRC32 = "crc32"
    """The default choice of librdkafka."""
    NONE = "none"
    """Keys are ignored: partitions get rows in turn."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a write, in batch or as a stream."""

    broker: BrokerOptions
    topic: str | None = None
    """Topic of all rows; None takes it from the column `topic`."""
    timestamp_column: str | None = None
    """Column of the create times; None takes the column `timestamp` if there is one, else the time
    of the write."""
    headers: bool = True
    """Whether a column `headers` is written."""
    acks: int = -1
    codec: Codec = Codec.NONE
    idempotent: bool = True
    job_id: str | None = None
    """Id of a batch job: a second run under the same id writes nothing twice."""
    partitioner: Partitioner = Partitioner.MURMUR2


def write_options(options: Mapping[str, str], *, overwrite: bool, streaming: bool) -> WriteOptions:
    """Parse the options of a write. Raises OptionError."""
    given = OptionValues(options)
    given.check(WRITE_NAMES, "a write")
    if overwrite and not streaming:
        raise OptionError('a topic can only be appended to: use mode("append")')
    topic = given.text("topic")
    if topic is not None and not topic.strip():
        raise OptionError("topic is empty: name one, or leave it out and have a column topic")
    job_id = given.text("jobId")
    idempotent = given.flag("idempotent", True)
    if job_id is not None and (streaming or not idempotent):
        raise OptionError(
            "jobId is for batches that are idempotent; a stream is known by its checkpoint"
        )
    return WriteOptions(
        given.broker(),
        topic,
        given.text("timestampColumn"),
        given.flag("includeHeaders", True),
        _ACKS[given.choice("acks", "all", tuple(_ACKS))],
        _CODECS[given.choice("compression", "none", tuple(_CODECS))],
        idempotent,
        job_id,
        Partitioner(given.choice("partitioner", "murmur2", tuple(Partitioner))),
    )


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics to read; exactly one of the fields is set."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    """A Python regular expression that has to match the whole name."""
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadBound:
    """Where reading starts or ends. If several fields are set, `time_ms` wins over `times_ms`, over
    `offsets`, over `place`."""

    place: Literal["earliest", "latest"]
    offsets: ByPartition = field(default_factory=dict)
    """Offset for each partition; -1 is the log end, -2 the log start."""
    times_ms: ByPartition = field(default_factory=dict)
    time_ms: int | None = None
    logs: TopicLogs = NO_LOGS
    """Ids of the logs that `offsets` belong to, if the option gave them."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a read, in batch or as a stream."""

    broker: BrokerOptions
    subscription: Subscription
    start: ReadBound
    end: ReadBound
    fail_if_no_time: bool = False
    """Whether a partition without messages from the start time on is an error. By default nothing
    of the partition is read."""
    exact: bool = False
    """Whether rows are chosen by their own timestamps between the bounds, wherever the messages
    are in the log."""
    max_out_of_order_ms: int | None = None
    """In an exact range: how far out of order messages may be, in ms; None reads to the log end."""
    fail_on_data_loss: bool = True
    min_partitions: int = 0
    max_records_per_partition: int = 0
    max_offsets_per_trigger: int = 0
    min_offsets_per_trigger: int = 0
    max_trigger_delay_ms: int = 900_000
    max_time_per_trigger_ms: int = 0
    idle_wait_ms: int = 100
    group_id: str | None = None
    """Name under which the broker stores the positions of a stream."""
    segments_path: str | None = None
    read_from: ReadFrom = "leader"
    """Where tasks read messages: at the leader, or at any broker. Plans always use the leader's
    offsets."""

    @property
    def window(self) -> Window | None:
        """The window of time of an exact range; None reads all rows."""
        if not self.exact or (self.start.time_ms is None and self.end.time_ms is None):
            return None
        return Window(self.start.time_ms or 0, self.end.time_ms)


class OptionValues:
    """The texts of the given options; names in lower case, as Spark stores them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value) for name, value in options.items()}

    def check(self, known: tuple[str, ...], purpose: str) -> None:
        check_names(self._values, known, purpose)

    def check_replaced(self) -> None:
        """Raise OptionError for an option of Kafka's Java client that Horolog's options replace."""
        for name in self._values:
            hint = replaced_by(name)
            if hint is not None:
                raise OptionError(f"unknown option {name!r}: {hint}")

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        return default if text is None else yes_or_no(name, text)

    def number(self, name: str, default: int, *, least: int = 0, most: int = 2**62) -> int:
        text = self.text(name)
        return default if text is None else whole(name, text, least=least, most=most)

    def duration(self, name: str, default: int, *, least: int = 0) -> int:
        text = self.text(name)
        return default if text is None else duration_ms(name, text, least=least)

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        text = self.text(name)
        return default if text is None else one_of(name, text, choices)

    def addresses(self) -> dict[str, str]:
        """Return the given addresses by option name. Raises OptionError for an address that
        contains a user or a password."""
        found = {name: value for name in SERVERS if (value := self.text(name)) is not None}
        for name, address in found.items():
            try:
                check_no_login(address)
            except ValueError as error:
                raise OptionError(f"{name}: {error}, as sasl.username and sasl.password") from None
        return found

    def broker(self) -> BrokerOptions:
        """Parse address, security and time-outs. Raises OptionError, also for a missing address."""
        found = self.addresses()
        if not found:
            raise OptionError(
                'the option "bootstrap.servers" is missing: the broker\'s HOST:PORT. '
                "(CREATE TABLE ... USING and saveAsTable lose options: DROP TABLE removes such a "
                "table, and a temporary view keeps options)"
            )
        if len(set(found.values())) > 1:
            raise OptionError(f"{' and '.join(found)} contradict each other: give one")
        address = next(iter(found.values())).strip()
        try:
            servers = parse_servers(address)
        except ValueError as error:
            raise OptionError(f"bootstrap.servers: {error}") from None
        try:
            found_security = security.from_options(self._security())
            if found_security is None and servers.tls:
                found_security = Security(tls=True, named_as_options=True)
            servers = replace(servers, security=found_security)
            _ = servers.channel  # raises SecurityError for options that contradict each other
        except SecurityError as error:
            raise OptionError(str(error)) from None
        return self.broker_at(servers)

    def _security(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for given, name in SECURITY.items():
            value = self.text(given)
            if value is not None and found.setdefault(name, value) != value:
                raise OptionError(f"{name} and kafka.{name} contradict each other: give one")
        return found

    def broker_at(self, servers: Servers) -> BrokerOptions:
        """Add the time-outs that the options give to the address. Raises OptionError."""
        retries, interval_ms, poll_ms = starmap(self.number, _KAFKA_PATIENCE.items())
        return BrokerOptions(
            servers,
            self.number("retryBudgetMs", max(_DEFAULT_RETRY_MS, retries * interval_ms)),
            self.number("requestTimeoutMs", max(_DEFAULT_REQUEST_MS, poll_ms), least=1),
        )


def check_no_shown_secret(options: Mapping[str, str]) -> None:
    """Raise OptionError for a secret that Spark would show. Spark hides the values of options with
    names such as `sasl.password` in its plans, event log and web page, but no others."""
    given = OptionValues(options)
    given.addresses()
    given.check_replaced()


def read_options(options: Mapping[str, str], *, streaming: bool, now_ms: int) -> ReadOptions:
    """Parse the options of a read. Relative times count from `now_ms`. Raises OptionError."""
    given = OptionValues(options)
    given.check(READ_NAMES, "a streaming read" if streaming else "a read")
    segments_path = given.text("segments.path")
    if segments_path is None:
        broker, subscription = given.broker(), _subscription(given)
    else:
        broker, subscription = given.broker_at(_NO_SERVERS), _no_broker(given, streaming)
    start = _bound(given, "starting", "latest" if streaming else "earliest", now_ms)
    end = _bound(given, "ending", "latest", now_ms)
    _check_bounds(start, end, streaming)
    for name in ("includeHeaders", "includeAppendTime"):
        given.flag(name, False)  # only checked here: `HorologDataSource.schema` uses them
    exact = _is_exact(given, start, end, streaming)
    slack = given.text("maxOutOfOrderness")
    if slack is not None and not exact:
        raise OptionError("maxOutOfOrderness needs timeRange=exact")
    if slack is not None and end.time_ms is None:
        raise OptionError(
            "maxOutOfOrderness says how far behind endingTimestamp to read: give that too"
        )
    return ReadOptions(
        broker,
        subscription,
        start,
        end,
        fail_if_no_time=given.choice(
            "startingOffsetsByTimestampStrategy", "latest", ("latest", "error")
        )
        == "error",
        exact=exact,
        max_out_of_order_ms=None if slack is None else duration_ms("maxOutOfOrderness", slack),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        min_partitions=given.number("minPartitions", 0, least=1, most=100_000),
        max_records_per_partition=given.number("maxRecordsPerPartition", 0, least=1),
        max_offsets_per_trigger=given.number("maxOffsetsPerTrigger", 0, least=1),
        min_offsets_per_trigger=given.number("minOffsetsPerTrigger", 0, least=1),
        max_trigger_delay_ms=given.duration("maxTriggerDelay", 900_000, least=1),
        max_time_per_trigger_ms=given.duration("maxTimePerTrigger", 0, least=1),
        idle_wait_ms=given.number("idleWaitMs", 100, most=_LONGEST_IDLE_WAIT_MS),
        group_id=group_id(given, streaming=streaming),
        segments_path=segments_path,
        read_from=read_from("readFrom", given.text("readFrom"), broker.servers),
    )


def group_id(given: OptionValues, *, streaming: bool = True) -> str | None:
    """Return the value of the option `groupId`; None without the option. Raises OptionError."""
    name = given.text("groupId")
    if name is None:
        return None
    if not streaming:
        raise OptionError(
            "groupId is for streams, whose progress is stored under it; leave it out of a batch"
        )
    if not name.strip():
        raise OptionError(f"groupId={name!r}: it is the name that `horolog lag` is to show")
    return name.strip()


def _subscription(given: OptionValues) -> Subscription:
    found = {name: text for name in _TOPICS if (text := given.text(name)) is not None}
    if len(found) != 1:
        given_now = f"there are {' and '.join(found)}" if found else "there is none"
        raise OptionError(f"exactly one of {', '.join(_TOPICS)} names the topics; {given_now}")
    ((name, text),) = found.items()
    if name == "assign":
        return Subscription(assigned=assignment(name, text))
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern={text!r} is no regular expression: {error}") from (
                None
            )
        return Subscription(pattern=text)
    names = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not names:
        raise OptionError(f"subscribe={text!r}: it is topics, separated by commas")
    return Subscription(names=names)


def _no_broker(given: OptionValues, streaming: bool) -> Subscription:
    if streaming:
        raise OptionError("segments.path is for batch reads: closed segments do not grow")
    also = [name for name in (*SERVERS, *_TOPICS) if given.text(name) is not None]
    if also:
        raise OptionError(f"segments.path reads files, without a broker: leave out {also[0]}")
    bounded = [name for name in READ_NAMES if "Offsets" in name and given.text(name) is not None]
    if bounded:
        raise OptionError(
            f"segments.path takes startingTimestamp and endingTimestamp, not {bounded[0]}"
        )
    return Subscription()


def _bound(
    given: OptionValues, side: str, default: Literal["earliest", "latest"], now_ms: int
) -> ReadBound:
    any_unit = given.flag("anyUnit", False)
    name = f"{side}Timestamp"
    text = given.text(name)
    if text is not None:
        return ReadBound(default, time_ms=time_ms(name, text, now_ms, any_unit=any_unit))
    name = f"{side}OffsetsByTimestamp"
    text = given.text(name)
    if text is not None:
        return ReadBound(default, times_ms=times_by_partition(name, text, any_unit=any_unit))
    name = f"{side}Offsets"
    text = given.text(name)
    if text is None:
        return ReadBound(default)
    word = text.strip().lower()
    if word in SENTINELS:
        return ReadBound("earliest" if word == "earliest" else "latest")
    if not text.lstrip().startswith("{"):
        raise OptionError(
            f'{name}={text!r}: it is earliest, latest, or JSON such as {{"t": {{"0": 17}}}}'
        )
    numbers, logs = offsets(name, text)
    return ReadBound(default, offsets=numbers, logs=logs)


def _check_bounds(start: ReadBound, end: ReadBound, streaming: bool) -> None:
    if start.time_ms is not None and end.time_ms is not None and end.time_ms < start.time_ms:
        raise OptionError(
            f"endingTimestamp ({end.time_ms}) is before startingTimestamp ({start.time_ms})"
        )
    if end.place == "earliest":
        raise OptionError(
            "endingOffsets=earliest would read nothing: leave it out, or name offsets"
        )
    if streaming:
        if end.offsets or end.times_ms:
            raise OptionError("a stream can be ended by endingTimestamp only")
        return
    starts_at_end = SENTINELS["latest"] in _all(start.offsets)
    if starts_at_end or (start == ReadBound("latest")):
        raise OptionError("startingOffsets=latest would read nothing in a batch: use earliest")
    for topic, partitions in start.offsets.items():
        for partition, first in partitions.items():
            stop = end.offsets.get(topic, {}).get(partition, SENTINELS["latest"])
            if 0 <= stop < first:
                raise OptionError(
                    f"endingOffsets of {topic}-{partition} ({stop}) is before its startingOffsets "
                    f"({first}): the end is the offset behind the last one read"
                )
    if SENTINELS["earliest"] in _all(end.offsets):
        raise OptionError("endingOffsets with -2 (earliest) would read nothing")


def _is_exact(given: OptionValues, start: ReadBound, end: ReadBound, streaming: bool) -> bool:
    """Whether rows are chosen by their own timestamps. This is the default of a batch that has no
    bounds by partition. A stream, whose checkpoint has offsets as bounds, needs
    timeRange=exact."""
    by_partition = any((start.offsets, start.times_ms, end.offsets, end.times_ms))
    default = "offsets" if streaming or by_partition else "exact"
    exact = given.choice("timeRange", default, ("exact", "offsets")) == "exact"
    if exact and by_partition:
        raise OptionError(
            "timeRange=exact goes with startingTimestamp and endingTimestamp, not with offsets"
        )
    if not exact and given.text("segments.path") is not None:
        raise OptionError(
            "timeRange=offsets needs a broker; files of segments.path are read with timeRange=exact"
        )
    return exact


def _all(numbers: ByPartition) -> set[int]:
    return {number for partitions in numbers.values() for number in partitions.values()}
