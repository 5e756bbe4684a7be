"""A broker for the tests of a module, topics of their own for each, and one Spark for all."""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from pyspark.sql import SparkSession

from horolog import blocking
from horolog.pipeline import session
from horolog.pipeline.java import NoJava, find_java
from horolog.testing.broker import BrokerThread
from horolog.tests.pipeline.sources import close_idle

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession as ConnectSession

_NUMBERS = itertools.count()

EARLY = Path(__file__).parent / "early"
"""The folder of what Python processes of Spark run at their start."""


@pytest.fixture(scope="module", autouse=True)
def nothing_kept() -> Iterator[None]:
    """Connections that a read in this process left to the next are closed."""
    yield
    close_idle()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """Keeps messages of any age."""
    with BrokerThread(tmp_path_factory.mktemp("broker") / "data", {"retention.ms": -1}) as started:
        yield started


@pytest.fixture(scope="module")
def producer(broker: BrokerThread) -> Iterator[blocking.Producer]:
    with blocking.Producer(broker.address, check_units=False, stamp_missing=False) as started:
        yield started


@pytest.fixture(scope="module")
def admin(broker: BrokerThread) -> Iterator[blocking.Admin]:
    with blocking.Admin(broker.address) as started:
        yield started


@pytest.fixture
def make_topic(admin: blocking.Admin) -> Callable[..., str]:
    """`make_topic(partitions)` is the name of a new topic."""

    def make(partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        name = f"topic{next(_NUMBERS)}"
        admin.create_topic(name, partitions=partitions, settings=settings or {})
        return name

    return make


def missing(why: str) -> NoReturn:
    """Skip, or fail where nothing may be skipped."""
    if os.environ.get("HOROLOG_REQUIRE") == "all":
        pytest.fail(f"{why}, and HOROLOG_REQUIRE=all asks for it")
    pytest.skip(why)


@pytest.fixture(scope="session")
def spark(
    start_once: Callable[[str], None],
    until_java_is_done: ExitStack,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SparkSession]:
    """A Spark of two cores that tries a task four times. It takes 10 seconds to start."""
    try:
        find_java(os.environ)
    except NoJava as error:
        missing(str(error))
    start_once("Spark")
    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.streaming.pollingDelay": "50ms",
        # How long Spark and Python wait for each other to connect, and for a worker's first word.
        "spark.python.authenticate.socketTimeout": "300s",
        # Tables that another run left, or has now, are not found.
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        # What these tests do is soon over: good code takes longer to make than it runs.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
        "-Dderby.stream.error.file=/dev/null",
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(EARLY), prepend=os.pathsep)
        started = session("tests", master="local[2,4]", conf=conf)
    started.sparkContext.setLogLevel("OFF")
    until_java_is_done.callback(started.stop)
    yield started
    until_java_is_done.close()


@pytest.fixture(scope="session")
def connect_address(spark: SparkSession) -> str:
    """The address of a Spark Connect server in the JVM of `spark`."""
    jvm: Any = spark._jvm
    companion = getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    service = getattr(companion, "MODULE$")
    service.start(spark.sparkContext._jsc.sc())
    return f"sc://127.0.0.1:{service.localPort()}"


@pytest.fixture
def connected(connect_address: str) -> Iterator["ConnectSession"]:
    """A session of that server."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    started = ConnectSession.builder.remote(connect_address).create()
    yield started
    streams = started.streams
    while streams._sqlb._listener_bus:
        streams.close()  # it removes every other listener
    started.stop()
