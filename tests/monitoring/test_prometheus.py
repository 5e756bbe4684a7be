"""A real Prometheus beside a real broker: it scrapes, and every query finds something."""

import asyncio
import json
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from horolog import Admin, Consumer, Producer
from horolog.protocol.errors import HorologError
from horolog.testing.broker import BrokerThread
from horolog.testing.ports import free_port
from horolog.testing.waiting import wait_until

from .queries import dashboard_queries, rule_queries

DEADLINE_SECONDS = 30


class Prometheus:
    """A Prometheus that runs."""

    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer. Raises `OSError` while nobody answers."""
        url = f"http://{self._address}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as response:
            return json.load(response)["data"]

    def query(self, text: str) -> list[Any]:
        found: list[Any] = self.ask("/api/v1/query", query=text)["result"]
        return found

    def until(self, condition: Callable[[], object]) -> None:
        """Ask again until it holds, for as long as the test may take."""
        pause = threading.Event()
        while True:
            try:
                if condition():
                    return
            except (urllib.error.URLError, ConnectionError):
                pass  # it is still starting
            pause.wait(0.05)


@contextmanager
def running_prometheus(program: str, root: Path, folder: Path, target: str) -> Iterator[Prometheus]:
    """With the configuration that is shipped, but for its target and its intervals."""
    text = (root / "docker" / "prometheus.yaml").read_text("utf-8")
    text = text.replace("broker:7071", target).replace(": 15s", ": 1s").replace(": 5s", ": 1s")
    (folder / "prometheus.yaml").write_text(text)
    (folder / "alerts.yaml").write_text((root / "docker" / "alerts.yaml").read_text("utf-8"))
    address = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield Prometheus(address)
        finally:
            process.kill()


async def use(broker: BrokerThread) -> None:
    """A little of everything that is counted: late messages and early ones, a refusal, a consumer
    that is behind, segments that roll."""
    async with (
        Admin(broker.address) as admin,
        Producer(broker.address) as producer,
        Consumer(broker.address) as consumer,
    ):
        now_ms = broker.clock.now_ms()
        if "clicks" not in await admin.list_topics():
            settings = {"segment.bytes": "500", "max.message.time.difference.ms": "86400000"}
            await admin.create_topic("clicks", settings=settings)
        for latency_ms in (3, 40, 900, 70_000, -600_000) * 4:
            await producer.send("clicks", b"value", timestamp_ms=now_ms - latency_ms)
        with pytest.raises(HorologError):
            await producer.send("clicks", b"value", timestamp_ms=now_ms - 10 * 86_400_000)
        await admin.commit_position("billing", "clicks", 0, 3)
        consumer.assign("clicks", 0, offset=0)
        await consumer.fetch()


def test_every_query_of_the_dashboard_and_the_rules_finds_something(
    root: Path, tmp_path: Path, require_program: Callable[[str], str]
) -> None:
    program = require_program("prometheus")
    docker = root / "docker"
    settings = {"http.listen": "127.0.0.1:0", "broker.id": 1, "cluster.create": "true"}
    with BrokerThread(tmp_path / "data", settings) as broker, follower(broker, tmp_path):
        assert broker.http_address is not None
        asyncio.run(use(broker))
        with running_prometheus(program, root, tmp_path, broker.http_address) as prometheus:
            prometheus.until(lambda: prometheus.query("horolog_appended_messages_total > 0"))
            # Rates need two scrapes, and something that happened between them.
            asyncio.run(use(broker))
            prometheus.until(lambda: prometheus.query("increase(horolog_clock_skew_total[1m]) > 0"))
            # A scrape fails on a machine that stands still; some metrics come with a later one.
            health = partial(health_of_target, prometheus)
            wait_until(lambda: health() == ("up", ""), state=health)
            queries = [*dashboard_queries(docker), *rule_queries(docker)]
            missing = partial(queries_without_result, prometheus, queries)
            wait_until(lambda: not missing(), state=missing)
            expected = {"HorologRetentionPinned", "HorologProducerClockSkew"}
            wrong = {"HorologDown", "HorologDamage", "HorologLogFailed"}
            alerts = partial(alerts_of, prometheus)
            wait_until(lambda: alerts() & (expected | wrong) == expected, state=alerts)
            of_rules = partial(health_of_rules, prometheus)
            wait_until(lambda: of_rules() == {"ok"}, state=of_rules)


def follower(leader: BrokerThread, folder: Path) -> BrokerThread:
    return BrokerThread(folder / "copy", {"broker.id": 2, "cluster.follow": leader.address})


def health_of_target(prometheus: Prometheus) -> tuple[str, str]:
    (target,) = prometheus.ask("/api/v1/targets")["activeTargets"]
    return target["health"], target["lastError"]


def queries_without_result(prometheus: Prometheus, queries: Sequence[str]) -> list[str]:
    return [query for query in queries if not prometheus.query(query)]


def health_of_rules(prometheus: Prometheus) -> set[str]:
    rules = prometheus.ask("/api/v1/rules")["groups"][0]["rules"]
    return {rule["health"] for rule in rules}


def alerts_of(prometheus: Prometheus) -> set[str]:
    """The names of the alerts that wait for their time or have come."""
    return {alert["labels"]["alertname"] for alert in prometheus.ask("/api/v1/alerts")["alerts"]}
