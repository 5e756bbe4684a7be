"""The container, the composition and the dashboard: as far as they can be checked without running
them in an engine."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from horolog.config.broker import broker_settings
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.server.network.held_memory import fitting_limits
from horolog.testing.broker import running_broker
from horolog.testing.ports import free_port
from horolog.testing.program import READY, Program
from horolog.testing.waiting import wait_until
from horolog.testing.wire import wire

from .queries import dashboard_queries, rule_queries

METRIC = re.compile(r"\b(horolog_\w+?)(?:_bucket|_sum|_count)?\b(?!\s*\()")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def docker(root: Path) -> Path:
    return root / "docker"


def test_brokers_may_take_so_much_memory_that_no_limit_has_to_be_lowered(docker: Path) -> None:
    bounded = []
    for path in docker.glob("compose*.yaml"):
        for name, service in load(path)["services"].items():
            if "build" in service:
                assert service["mem_limit"] == "2g", name
                bounded.append(name)
    assert len(bounded) == 7
    left = (2 << 30) - (64 << 20)
    defaults = broker_settings({})
    for name, limit in fitting_limits(defaults, left).items():
        assert limit == getattr(defaults, name)


def test_the_composition_finds_its_files_and_stays_on_this_machine(docker: Path) -> None:
    composition = load(docker / "compose.yaml")
    assert list(composition["services"]) == ["broker", "prometheus", "grafana"]
    mounted = set()
    for service in composition["services"].values():
        assert service["restart"] == "unless-stopped"
        for port in service["ports"]:
            assert port.startswith("127.0.0.1:")
        for volume in service["volumes"]:
            source, target, *mode = volume.split(":")
            if source.startswith("./"):
                assert (docker / source).is_file()
                assert mode == ["ro"]
                mounted.add(target)
            else:
                assert source in composition["volumes"]
        assert "mem_limit" in service
        for how in service.get("depends_on", {}).values():
            assert how == {"condition": "service_healthy"}
        image = service.get("image", "a:1.0")
        assert re.fullmatch(r"[\w/-]+:v?\d+\.\d+(\.\d+)?", image), "not a version that stays"
    assert (docker / composition["services"]["broker"]["build"]["context"] / "Dockerfile").is_file()
    home = composition["services"]["grafana"]["environment"]
    assert home["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in mounted
    (provider,) = load(docker / "grafana" / "dashboards.yaml")["providers"]
    assert f"{provider['options']['path']}/dashboard.json" in mounted
    (target,) = load(docker / "prometheus.yaml")["scrape_configs"][0]["static_configs"]
    assert target == {"targets": ["broker:7071"]}
    (source,) = load(docker / "grafana" / "datasource.yaml")["datasources"]
    assert (source["uid"], source["url"]) == ("prometheus", "http://prometheus:9090")


async def test_other_containers_and_this_machine_are_told_their_own_addresses(
    docker: Path, tmp_path: Path
) -> None:
    service = load(docker / "compose.yaml")["services"]["broker"]
    env = service["environment"]
    inside, outside = (f"127.0.0.1:{free_port()}" for _ in range(2))
    listen = env["HOROLOG_KAFKA_LISTEN"].replace("0.0.0.0:9092", outside)
    told = []
    async with running_broker(
        tmp_path,
        kafka_listen=listen.replace("0.0.0.0:19092", inside),
        advertised_listeners=env["HOROLOG_ADVERTISED_LISTENERS"],
    ):
        for address in (outside, inside):
            async with wire(address, kafka) as client:
                (node,) = (await client.call(MetadataRequest(topics=[]))).brokers
                told.append(f"{node.host}:{node.port}")
    assert told == ["127.0.0.1:9092", "broker:19092"]
    assert f"{told[0]}:9092" in service["ports"]
    assert service["expose"] == [told[1].rpartition(":")[2]]


def test_the_dashboard_holds_together(docker: Path) -> None:
    dashboard = json.loads((docker / "grafana" / "dashboard.json").read_text("utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["datasource"] == {"type": "prometheus", "uid": "prometheus"}
        names = [target["refId"] for target in panel["targets"]]
        assert names == ["A", "B", "C"][: len(names)]
        assert panel["title"]
    (variable,) = dashboard["templating"]["list"]
    assert (variable["name"], variable["includeAll"], variable["allValue"]) == ("topic", True, ".*")


def test_every_metric_they_ask_for_exists(root: Path, docker: Path) -> None:
    known = set(re.findall(r"^\| `(horolog_\w+)`", (root / "docs/metrics.md").read_text(), re.M))
    queries = [*dashboard_queries(docker), *rule_queries(docker)]
    assert len(queries) > 30
    asked = {name for query in queries for name in METRIC.findall(query)}
    assert asked <= known
    assert "horolog_latency_seconds" in asked


def test_the_rules_and_the_configuration_are_valid(
    docker: Path, tmp_path: Path, require_program: Callable[[str], str]
) -> None:
    promtool = require_program("promtool")
    for name in ("prometheus.yaml", "alerts.yaml"):
        shutil.copy(docker / name, tmp_path)
    done = subprocess.run(
        [promtool, "check", "config", tmp_path / "prometheus.yaml"], capture_output=True, text=True
    )
    assert (done.returncode, "18 rules found" in done.stdout) == (0, True), done.stdout


def test_each_alert_comes_when_it_has_to_and_only_then(
    docker: Path, tmp_path: Path, require_program: Callable[[str], str]
) -> None:
    promtool = require_program("promtool")
    tests = Path(__file__).with_name("alerts_test.yaml")
    shutil.copy(docker / "alerts.yaml", tmp_path)
    shutil.copy(tests, tmp_path)
    (rules,) = load(docker / "alerts.yaml")["groups"]
    names = {rule["alert"] for rule in rules["rules"]}
    for test in load(tests)["tests"]:
        assert {checked["alertname"] for checked in test["alert_rule_test"]} == names
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / tests.name], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_explained(root: Path, docker: Path) -> None:
    page = (root / "docs" / "monitoring.md").read_text("utf-8")
    (rules,) = load(docker / "alerts.yaml")["groups"]
    told = re.findall(r"^\| `(Horolog\w+)` \|", page, re.M)
    assert told == [rule["alert"] for rule in rules["rules"]]
    assert {rule["labels"]["severity"] for rule in rules["rules"]} <= {
        "critical",
        "warning",
        "info",
    }


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """(instruction, arguments) in order, lines that go on joined."""
    text = re.sub(r"^#.*\n", "", dockerfile.read_text("utf-8"), flags=re.M).replace("\\\n", " ")
    parted = [line.partition(" ") for line in text.splitlines() if line.strip()]
    return [(instruction, arguments.strip()) for instruction, _, arguments in parted]


def test_the_container_runs_a_broker_that_is_nobody_special(root: Path) -> None:
    found = instructions(root / "Dockerfile")
    stages = [number for number, (name, _) in enumerate(found) if name == "FROM"]
    assert len(stages) == 2
    assert found[0][0] == "ARG"
    name, _, base = found[0][1].partition("=")
    assert re.fullmatch(r"python:3\.\d+\.\d+-[\w-]+", base), "not a version that stays"
    assert {arguments.split()[0] for each, arguments in found if each == "FROM"} == {f"${{{name}}}"}
    last = found[stages[1] :]
    assert ("VOLUME", "/data") in last
    assert ("USER", "horolog") in last
    users = [number for number, (name, _) in enumerate(last) if name == "USER"]
    assert not [name for name, _ in last[users[0] :] if name in ("RUN", "COPY", "ADD")]
    assert "gcc" not in " ".join(arguments for _, arguments in last)
    for name, arguments in found:
        if name == "COPY":
            source = shlex.split(arguments)[:-1]
            assert all((root / path).exists() for path in source if "--from" not in arguments)


def test_what_the_container_runs_serves_and_is_healthy(root: Path, tmp_path: Path) -> None:
    last = instructions(root / "Dockerfile")
    settings = dict(
        part.split("=", 1) for name, text in last if name == "ENV" for part in shlex.split(text)
    )
    assert settings.pop("HOROLOG_DATA_DIR") == "/data"
    env = {name: re.sub(r":\d+$", ":0", value) for name, value in settings.items()}
    (check,) = [text for name, text in last if name == "HEALTHCHECK"]
    command: list[str] = json.loads(check[check.index("[") :])

    def healthy(port: str) -> bool:
        asked = [part.replace(":7071/", f":{port}/") for part in command]
        return subprocess.run(asked, capture_output=True).returncode == 0

    env["HOROLOG_DATA_DIR"] = str(tmp_path)
    # As docker/compose.yaml sets it: without it, or TLS and users, the image does not start.
    env["HOROLOG_ALLOW_PLAINTEXT"] = "true"
    with Program(env=env).running("serve") as process:
        assert process.stdout is not None
        ready = READY.fullmatch(process.stdout.readline())
        assert ready is not None
        host, _, port = ready["http"].rpartition(":")
        assert host == "0.0.0.0"
        # The container engine asks again, too: modules for HTTP may still be loading.
        wait_until(lambda: healthy(port))
        process.terminate()
        assert process.wait() == 0
        assert not healthy(port)
