"""Fixtures: the Apache Kafka that the tests of a run share."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from horolog.bench.apache_kafka import ApacheKafka, Unavailable, apache_kafka, class_path

from .secure_clients.listeners import LISTENERS, USERS, Certificates, listener_settings


@pytest.fixture(scope="session")
def require_apache_kafka() -> None:
    """The test needs `horolog.bench.apache_kafka`; where Kafka cannot be had it skips by name.

    The first use fetches it, so such a test needs a `timeout` mark of a quarter of an hour.
    """
    try:
        class_path()
    except Unavailable as error:
        if os.environ.get("HOROLOG_REQUIRE") == "all":
            pytest.fail(f"{error}, and HOROLOG_REQUIRE=all asks for it")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def start_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], None]:
    """`start_once("Spark")` fails if another process of the same run has one."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def start(name: str) -> None:
        try:
            (root / f"{name} was started").touch(exist_ok=False)
        except FileExistsError:
            pytest.fail(f"another process of this run has {name}: see _JAVA_MODULES in conftest.py")

    return start


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.made(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def apache(
    require_apache_kafka: None,
    start_once: Callable[[str], None],
    certificates: Certificates,
    until_java_is_done: ExitStack,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ApacheKafka]:
    """Apache Kafka, three brokers: one cluster for the whole run, with guarded listeners beside the
    plain one.

    It takes ten seconds to start. Tests take topics of their own; one that stops a broker starts it
    again, and leaves the first one, which leads the cluster.
    """
    start_once("Apache Kafka")
    settings = {
        "default.replication.factor": "3",
        "auto.create.topics.enable": "true",
        **listener_settings(certificates),
    }
    running = until_java_is_done.enter_context(
        apache_kafka(
            tmp_path_factory.mktemp("apache-kafka"),
            brokers=3,
            settings=settings,
            listeners=LISTENERS,
            users=USERS,
        )
    )
    yield running
    until_java_is_done.close()
    assert all(broker.process is None for broker in running.brokers)


@pytest.fixture
def cluster(apache: ApacheKafka) -> str:
    """The address of the cluster."""
    return f"kafka://{apache.bootstrap}"
