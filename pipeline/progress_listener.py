"""Publishes the progress of streaming queries, as named positions at the broker.

Spark reports the end of a batch to a source only when the next batch begins, and never for the last
batch. A query listener gets each report at once, but only with offsets. The name for the positions
is an option of the source, which is found in the query's plan. Under Spark Connect a program cannot
see that plan, so it has to name the queries.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast
from uuid import UUID

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from ..client.cluster.servers import Servers
from ..client.consume.consumer import Consumer
from .connecting import CLIENT_ID
from .option_values import OptionError
from .options import READ_NAMES, BrokerOptions, OptionValues, group_id
from .planning import Offsets, TopicPartition, from_json
from .questions import LOOP
from .source import NAME
from .spark_session import AnySession, is_connect

_LONGEST_WAIT_MS: Final = 5_000
"""Limit for a request to the broker. Spark calls listeners one after the other, so a broker that
does not answer delays the other listeners."""

_PYTHON_SOURCE: Final = "PythonMicroBatchStream"
"""Text in the description of a source that is written in Python."""

_log = logging.getLogger(__name__)


class Publisher:
    """Stores the positions of one source under one name.

    Errors are not raised but logged; the next call of `publish` stores the positions again.
    """

    def __init__(self, broker: BrokerOptions, name: str) -> None:
        """`name` is the name of the stored positions."""
        LOOP.enter()
        self._broker = broker
        self._name = name
        self._consumer: Consumer | None = None
        self._wanted: Offsets = {}
        self._stored: Offsets = {}
        self._failure = ""

    def publish(self, offsets: Offsets) -> None:
        """Store the next offsets to read. Returns when they are durable or storing has failed."""
        self._wanted = dict(offsets)
        if self._wanted == self._stored:
            return
        try:
            LOOP.run(self._store())
        except Exception as error:
            self._warn(str(error))
            with suppress(Exception):
                LOOP.run(self._drop())
        else:
            self._stored, self._failure = self._wanted, ""

    def close(self) -> None:
        """Try once more to store positions that could not be stored, and close the connection."""
        self.publish(self._wanted)
        with suppress(Exception):
            LOOP.run(self._drop())
        LOOP.leave()

    async def _store(self) -> None:
        if self._consumer is None:
            self._consumer = Consumer(
                self._broker.servers,
                name=self._name,
                client_id=CLIENT_ID,
                request_timeout_ms=min(self._broker.request_timeout_ms, _LONGEST_WAIT_MS),
                retry_timeout_ms=0,
            )
        consumer = self._consumer
        assigned = set(consumer.assignment)
        for key, offset in self._wanted.items():
            if key in assigned:
                consumer.seek(*key, offset)
            else:
                consumer.assign(*key, offset=offset)
        await consumer.commit()

    async def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close()

    def _warn(self, failure: str) -> None:
        """Log a failure, unless the previous failure had the same text."""
        if failure != self._failure:
            _log.warning(
                "the progress of groupId=%s could not be stored at %s (%s); it is tried again with "
                "the next batch",
                self._name,
                self._broker.address,
                failure,
            )
        self._failure = failure


def publisher_of(options: Mapping[str, str]) -> Publisher | None:
    """Return the publisher for a stream with these read options; None without a `groupId`."""
    given = OptionValues(options)
    name = group_id(given)
    return None if name is None else Publisher(given.broker(), name)


def destination(server: str | Servers | Mapping[str, str], group: str) -> tuple[BrokerOptions, str]:
    """Return the broker that stores the positions, and their name. `server` is an address or the
    options of a read. Raises OptionError."""
    if isinstance(server, Servers):
        broker = BrokerOptions(server)
    else:
        given = OptionValues({"bootstrap.servers": server} if isinstance(server, str) else server)
        given.check(READ_NAMES, "publish_progress")
        broker = given.broker()
    name = group_id(OptionValues({"groupId": group}))
    assert name is not None
    return broker, name


def earliest(ends: Iterable[Offsets]) -> Offsets:
    """Return for each partition the smallest offset that the sources have reached, over all
    sources that read it."""
    found: dict[TopicPartition, int] = {}
    for offsets in ends:
        for key, offset in offsets.items():
            found[key] = min(offset, found.get(key, offset))
    return found


def publish_progress(
    spark: AnySession,
    queries: Mapping[str, tuple[str | Servers | Mapping[str, str], str]] | None = None,
) -> StreamingQueryListener:
    """Store the progress of a session's streaming queries at the broker, from now on.

    This covers sources with the option `groupId`, and the queries in `queries`, by the name that
    `.queryName(...)` gives them: `{"copy": (server, group)}`. `server` is an address or the options
    of a read; that broker gets the positions of all topics that the query reads in the format
    `horolog`. Spark Connect needs `queries`, because options cannot be seen there.

    One call per session is enough, but cloned sessions need their own call.
    `spark.streams.removeListener` stops it. Raises OptionError.
    """
    named = {name: _destination(name, where) for name, where in (queries or {}).items()}
    if is_connect(spark):
        if not named:
            raise OptionError(
                "under Spark Connect the option groupId of a source cannot be seen: name the "
                "queries, publish_progress(spark, {query_name: (server, group)})"
            )
        listener = ProgressListener(lambda _: None, named)
        spark.streams.addListener(listener)
        return listener
    streams = cast(SparkSession, spark).streams
    listener = ProgressListener(streams.get, named)
    streams.addListener(listener)
    for query in streams.active:
        listener.ask(query)
    return listener


def _destination(name: str, where: object) -> tuple[BrokerOptions, str]:
    match where:
        case (str() | Servers() | Mapping() as server, str(group)):
            return destination(server, group)
    raise OptionError(f"publish_progress: the query {name!r} needs a pair (server, group)")


class _OneText(JStreamingQueryListener):
    """Fetches a progress report from the JVM as one JSON text. Spark fetches it field by field,
    which can take longer than a short batch; the stored positions would lag more and more."""

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802
        fields = json.loads(jevent.progress().json())
        event = QueryProgressEvent(StreamingQueryProgress.fromJson(fields))
        self.pylistener.onQueryProgress(event)


class ProgressListener(StreamingQueryListener):
    """Stores the end offsets of each batch as positions, under the name given for the source.

    Errors are logged and never fail a query.
    """

    def __init__(
        self,
        find: Callable[[str], StreamingQuery | None],
        named: Mapping[str, tuple[BrokerOptions, str]] | None = None,
    ) -> None:
        """`find` returns a running query by its id. `named` maps the names of queries, whose
        options are then not looked up, to the broker and name for their positions."""
        super().__init__()
        self._find = find
        self._named = named or {}
        self._wrapped: Any = None
        self._runs: dict[UUID, list[Publisher | None]] = {}

    @property
    def _jlistener(self) -> Any:
        """The listener object that the JVM calls; Spark adds and removes it."""
        if self._wrapped is None:
            from pyspark import SparkContext  # a client for Spark Connect only has no SparkContext

            jvm: Any = SparkContext._jvm
            self._wrapped = jvm.PythonStreamingQueryListenerWrapper(_OneText(self))
        return self._wrapped

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Look up the options of the query's sources. Spark waits for this call before the query
        begins, so the query still exists; at the first progress report it may have ended."""
        query = None if event.name in self._named else self._find(str(event.id))
        if query is not None:
            self.ask(query)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Store the end offsets of a finished batch."""
        progress = event.progress
        where = self._named.get(progress.name or "")
        if where is not None:
            self._publish_all(progress, *where)
            return
        publishers = self._runs.get(progress.runId, [])
        if not any(publishers):
            return
        if len(publishers) != len(progress.sources):
            _log.error(
                "query %s has %d sources in its plan and %d in its progress, so nothing is stored "
                "under a groupId",
                *(progress.id, len(publishers), len(progress.sources)),
            )
            return
        for publisher, source in zip(publishers, progress.sources, strict=True):
            if publisher is None:
                continue
            end = json.loads(source.endOffset or "null")
            if end is not None:
                publisher.publish(from_json(end))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Close the connections of the query's publishers."""
        for publisher in self._runs.pop(event.runId, ()):
            if publisher is not None:
                publisher.close()

    def _publish_all(
        self, progress: StreamingQueryProgress, broker: BrokerOptions, group: str
    ) -> None:
        """Store the offsets that all sources of a named query have reached."""
        ends = [end for source in progress.sources if (end := _our_end(source)) is not None]
        if not ends:
            return
        if progress.runId not in self._runs:
            self._runs[progress.runId] = [Publisher(broker, group)]
        (publisher,) = self._runs[progress.runId]
        assert publisher is not None
        publisher.publish(earliest(ends))

    def ask(self, query: StreamingQuery) -> None:
        """Look up under which names to store the progress of a query, unless that is known."""
        if query.name in self._named or UUID(query.runId) in self._runs:
            return
        try:
            self.learn(UUID(query.runId), source_options(query))
        except Exception:
            _log.exception("the progress of query %s cannot be stored", query.id)

    def learn(self, run_id: UUID, sources: Sequence[Mapping[str, str] | None]) -> None:
        """Make the publishers of a running query from the options of its sources; None stands for
        a source of another format."""
        self._runs[run_id] = [
            None if options is None else publisher_of(options) for options in sources
        ]


def _our_end(source: SourceProgress) -> Offsets | None:
    """Return the end offsets of a batch in a source of this format; None for other sources, and for
    a batch without an end."""
    if _PYTHON_SOURCE not in source.description:
        return None
    end = json.loads(source.endOffset or "null")
    try:
        found = from_json(end)
    except (AttributeError, ValueError):
        return None  # the offsets of another source written in Python
    return found if all(type(offset) is int for offset in found.values()) else None


def source_options(query: StreamingQuery) -> list[dict[str, str] | None]:
    """Return the options of each source of a query, in the order of its progress reports; None for
    a source of another format."""
    found: list[dict[str, str] | None] = []
    seen: list[Any] = []
    java: Any = query._jsq
    leaves = java.streamingQuery().analyzedPlan().collectLeaves()
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        # A leaf that appears twice in the plan is a single source.
        if not leaf.isStreaming() or leaf in seen:
            continue
        seen.append(leaf)
        ours = leaf.getClass().getSimpleName() == "StreamingRelationV2" and (
            leaf.sourceName().lower() == NAME
        )
        found.append(dict(leaf.extraOptions().asCaseSensitiveMap()) if ours else None)
    return found
