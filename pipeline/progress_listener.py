"""Publishing the progress of streaming queries, for those whose sources have the option `groupId`.

Spark reports the end of a batch to a source only when the next batch begins, and never for the last
one. A listener gets each report at once, but with offsets only; the options of a source are in the
query's plan.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from .planning import from_json
from .progress import Publisher, publisher_of
from .source import NAME

_log = logging.getLogger(__name__)


def publish_progress(spark: SparkSession) -> StreamingQueryListener:
    """From now on, store at the broker how far each stream with the option `groupId` has come.

    Once for a session is enough; it holds for all its streaming queries, and for those of cloned
    sessions it has to be said again. `spark.streams.removeListener` ends it.
    """
    listener = ProgressListener(spark.streams.get)
    spark.streams.addListener(listener)
    for query in spark.streams.active:
        listener.ask(query)
    return listener


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

    def __init__(self, find: Callable[[str], StreamingQuery | None]) -> None:
        """`find` gives the query with an id, while it runs."""
        super().__init__()
        self._find = find
        self._wrapped: Any = None
        self._runs: dict[UUID, list[Publisher | None]] = {}

    @property
    def _jlistener(self) -> Any:
        """What the JVM calls; Spark adds and removes it."""
        if self._wrapped is None:
            jvm: Any = SparkContext._jvm
            self._wrapped = jvm.PythonStreamingQueryListenerWrapper(_OneText(self))
        return self._wrapped

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Spark waits for this before the query begins, so the query is there to be asked; when
        its progress comes it may be gone."""
        query = self._find(str(event.id))
        if query is not None:
            self.ask(query)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch is done: what is behind it is next."""
        progress = event.progress
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

    def ask(self, query: StreamingQuery) -> None:
        """Find out under which names the progress of a query is stored, unless that is known."""
        if UUID(query.runId) in self._runs:
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
