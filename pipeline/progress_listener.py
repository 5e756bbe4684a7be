"""Publishing the progress of streaming queries: how far each has come, as positions at the broker.

Spark reports the end of a batch to a source only when the next batch begins, and never for the last
one. A listener gets each report at once, but with offsets only. Where the offsets are to be stored
is in the options of a source, which the query's plan has; under Spark Connect a program cannot see
that plan, and names the queries instead.
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
"""Spark calls one listener after the other, so the others wait for a broker that does not answer.
"""

_PYTHON_SOURCE: Final = "PythonMicroBatchStream"
"""In the description of a source that is written in Python."""

_log = logging.getLogger(__name__)


class Publisher:
    """Stores positions of one source under one name.

    Nothing that goes wrong is raised: it is logged, and done again with the next positions.
    """

    def __init__(self, broker: BrokerOptions, name: str) -> None:
        """`name` is the one that the positions get."""
        LOOP.enter()
        self._broker = broker
        self._name = name
        self._consumer: Consumer | None = None
        self._wanted: Offsets = {}
        self._stored: Offsets = {}
        self._failure = ""

    def publish(self, offsets: Offsets) -> None:
        """Store the next offsets to read; returns when they are durable, or could not be stored."""
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
        """Try once more what could not be stored, and close the connection."""
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
        """Log a failure, once while it stays the same."""
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
    """For a stream with these options of a read; None when they do not ask for one."""
    given = OptionValues(options)
    name = group_id(given)
    return None if name is None else Publisher(given.broker(), name)


def destination(server: str | Servers | Mapping[str, str], group: str) -> tuple[BrokerOptions, str]:
    """Where positions are stored, and under which name: `server` is an address, or the options of
    a read. Raises OptionError."""
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
    """The offsets that all of several sources have reached, in what any of them reads."""
    found: dict[TopicPartition, int] = {}
    for offsets in ends:
        for key, offset in offsets.items():
            found[key] = min(offset, found.get(key, offset))
    return found


def publish_progress(
    spark: AnySession,
    queries: Mapping[str, tuple[str | Servers | Mapping[str, str], str]] | None = None,
) -> StreamingQueryListener:
    """From now on, store at the broker how far the streaming queries of a session have come.

    These are the sources with the option `groupId`, and the queries in `queries`, by the name that
    `.queryName(...)` gives them: `{"copy": (server, group)}`. There `server` is an address or the
    options of the read, and takes the positions of all topics that the query reads by this format.
    Spark Connect needs `queries`, because options cannot be seen there.

    Once for a session is enough; for those of cloned sessions it has to be said again.
    `spark.streams.removeListener` ends it. Raises OptionError.
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
    """Fetches a progress from the JVM as one text. Field by field, as Spark does it, can take
    longer than a short batch, so that what is stored would fall ever further behind."""

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802
        fields = json.loads(jevent.progress().json())
        event = QueryProgressEvent(StreamingQueryProgress.fromJson(fields))
        self.pylistener.onQueryProgress(event)


class ProgressListener(StreamingQueryListener):
    """Stores the end of each batch under the name that its source was given.

    Nothing here fails a query: what goes wrong is logged.
    """

    def __init__(
        self,
        find: Callable[[str], StreamingQuery | None],
        named: Mapping[str, tuple[BrokerOptions, str]] | None = None,
    ) -> None:
        """`find` gives the query with an id, while it runs. `named` are queries whose options are
        not asked for, with where their progress is stored."""
        super().__init__()
        self._find = find
        self._named = named or {}
        self._wrapped: Any = None
        self._runs: dict[UUID, list[Publisher | None]] = {}

    @property
    def _jlistener(self) -> Any:
        """What the JVM calls; Spark adds and removes it."""
        if self._wrapped is None:
            from pyspark import SparkContext  # a client of Spark Connect alone has none

            jvm: Any = SparkContext._jvm
            self._wrapped = jvm.PythonStreamingQueryListenerWrapper(_OneText(self))
        return self._wrapped

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Spark waits for this before the query begins, so the query is there to be asked; when
        its progress comes it may be gone."""
        query = None if event.name in self._named else self._find(str(event.id))
        if query is not None:
            self.ask(query)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch is done: what is behind it is next."""
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
        """Leave the brokers alone."""
        for publisher in self._runs.pop(event.runId, ()):
            if publisher is not None:
                publisher.close()

    def _publish_all(
        self, progress: StreamingQueryProgress, broker: BrokerOptions, group: str
    ) -> None:
        """Store what all sources of a named query have reached."""
        ends = [end for source in progress.sources if (end := _our_end(source)) is not None]
        if not ends:
            return
        if progress.runId not in self._runs:
            self._runs[progress.runId] = [Publisher(broker, group)]
        (publisher,) = self._runs[progress.runId]
        assert publisher is not None
        publisher.publish(earliest(ends))

    def ask(self, query: StreamingQuery) -> None:
        """Find out under which names the progress of a query is stored, unless that is known."""
        if query.name in self._named or UUID(query.runId) in self._runs:
            return
        try:
            self.learn(UUID(query.runId), source_options(query))
        except Exception:
            _log.exception("the progress of query %s cannot be stored", query.id)

    def learn(self, run_id: UUID, sources: Sequence[Mapping[str, str] | None]) -> None:
        """The options of each source of a query that runs; None for one that is not ours."""
        self._runs[run_id] = [
            None if options is None else publisher_of(options) for options in sources
        ]


def _our_end(source: SourceProgress) -> Offsets | None:
    """Where a batch ended in a source of this format; None for other sources, and without one."""
    if _PYTHON_SOURCE not in source.description:
        return None
    end = json.loads(source.endOffset or "null")
    try:
        found = from_json(end)
    except (AttributeError, ValueError):
        return None  # that of another source written in Python
    return found if all(type(offset) is int for offset in found.values()) else None


def source_options(query: StreamingQuery) -> list[dict[str, str] | None]:
    """The options of each source of a query, in the order of its progress; None for one that is
    not ours."""
    found: list[dict[str, str] | None] = []
    seen: list[Any] = []
    java: Any = query._jsq
    leaves = java.streamingQuery().analyzedPlan().collectLeaves()
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        # One that is read twice in a query, and not copied for it, is one source.
        if not leaf.isStreaming() or leaf in seen:
            continue
        seen.append(leaf)
        ours = leaf.getClass().getSimpleName() == "StreamingRelationV2" and (
            leaf.sourceName().lower() == NAME
        )
        found.append(dict(leaf.extraOptions().asCaseSensitiveMap()) if ours else None)
    return found
