"""The compositions of several brokers: well formed, and run as processes with what they set."""

import json
import os
import re
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from horolog.config.broker import NAMES, ignored_variables, load
from horolog.testing.etcd import EtcdProcess
from horolog.testing.ports import free_port
from horolog.testing.program import READY, Program
from horolog.testing.waiting import wait_until

COMPOSITIONS = {"compose-two.yaml": 2, "compose-cluster.yaml": 3}


def composition_of(root: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((root / "docker" / name).read_text("utf-8"))
    return loaded


def brokers_of(composition: dict[str, Any]) -> dict[str, Any]:
    services = composition["services"]
    return {name: service for name, service in services.items() if name.startswith("broker")}


@pytest.fixture(scope="module")
def image(root: Path) -> dict[str, str]:
    """What the image sets by itself."""
    text = (root / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    (line,) = re.findall(r"^ENV (.*)$", text, re.M)
    return dict(part.split("=", 1) for part in line.split())


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_a_composition_is_well_formed(root: Path, image: dict[str, str], name: str) -> None:
    composition = composition_of(root, name)
    brokers = brokers_of(composition)
    assert len(brokers) == COMPOSITIONS[name]
    ports, ids, volumes = [], [], []
    for each in composition["services"].values():
        assert each["restart"] == "unless-stopped"
        for port in each.get("ports", []):
            assert port.startswith("127.0.0.1:")
            ports.append(port.split(":")[1])
        assert "mem_limit" in each
        for needed, how in each.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            assert "healthcheck" in composition["services"][needed]
        volumes += [volume.partition(":")[0] for volume in each["volumes"]]
        tag = each.get("image", "a:1.0")
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+(\.\d+)?", tag), "not a version that stays"
    for service in brokers.values():
        assert (root / "docker" / service["build"]["context"] / "Dockerfile").is_file()
        assert all(isinstance(value, str) for value in service["environment"].values())
        env = image | service["environment"]
        assert ignored_variables(env) == []
        settings = load(None, env, [])
        ids.append(settings.broker_id)
        assert "/readyz" in service["healthcheck"]["test"][-1]
        told = settings.advertised_listeners.rpartition(":")[2]
        assert f"127.0.0.1:{told}:9092" in service["ports"]
    assert ids == list(range(1, len(brokers) + 1))
    assert len(set(ports)) == len(ports)
    assert sorted(volumes) == sorted(composition["volumes"])
    assert NAMES.find("min.insync.replicas")


class Running:
    """The brokers of a composition, as processes of this machine."""

    def __init__(self, brokers: dict[str, Any], image: dict[str, str], place: Path) -> None:
        self._stack = ExitStack()
        self.http: dict[str, str] = {}
        self.native: dict[str, str] = {}
        self._places = {name: f"127.0.0.1:{free_port()}" for name in brokers}
        self._brokers, self._image, self._place = brokers, image, place

    def start(self, **more: str) -> None:
        for name, service in self._brokers.items():
            env = {**self._image, **service["environment"], **more}
            for inner, outer in self._places.items():
                env = {key: value.replace(f"{inner}:7070", outer) for key, value in env.items()}
            env |= {
                "HOROLOG_DATA_DIR": str(self._place / name),
                "HOROLOG_LISTEN": self._places[name],
                "HOROLOG_HTTP_LISTEN": "127.0.0.1:0",
                "HOROLOG_KAFKA_LISTEN": "127.0.0.1:0",
                "HOROLOG_REPLICA_LAG_TIME_MAX_MS": "2000",
            }
            process = self._stack.enter_context(Program(env=env).running("serve"))
            self._stack.callback(process.terminate)
            assert process.stdout is not None
            ready = READY.fullmatch(process.stdout.readline())
            assert ready is not None
            self.http[name], self.native[name] = ready["http"], ready["native"]

    def is_healthy(self, name: str) -> bool:
        """What the composition's check says."""
        check = [
            "python3" if part == "python" else part.replace("127.0.0.1:7071", self.http[name])
            for part in self._brokers[name]["healthcheck"]["test"][1:]
        ]
        return subprocess.run(check, capture_output=True).returncode == 0

    def leads(self, name: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.http[name]}/leader", timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            return error.code != 503

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def place() -> Iterator[Path]:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name:
        yield Path(name)


@pytest.mark.parametrize(
    "name",
    ["compose-cluster.yaml", pytest.param("compose-two.yaml", marks=pytest.mark.soak)],
)
def test_what_a_composition_sets_makes_a_cluster(
    root: Path,
    image: dict[str, str],
    place: Path,
    name: str,
    require_program: Callable[[str], str],
) -> None:
    brokers = brokers_of(composition_of(root, name))
    with ExitStack() as stack:
        more = {}
        if name == "compose-cluster.yaml":
            require_program("etcd")
            etcd = EtcdProcess(place / "etcd")
            stack.callback(etcd.close)
            etcd.start()
            more["HOROLOG_CLUSTER_ETCD"] = etcd.url
        running = Running(brokers, image, place)
        stack.callback(running.close)
        running.start(**more)
        wait_until(lambda: all(running.is_healthy(each) for each in brokers))
        leading = [each for each in brokers if running.leads(each)]
        assert leading == ["broker1"]
        program = Program(",".join(running.native.values()))

        def in_sync() -> object:
            return json.loads(program.ok("cluster", "status", "--json").out)["in_sync"]

        # A follower that stood still for longer than its lag may be is back soon.
        wait_until(lambda: in_sync() == list(range(1, len(brokers) + 1)), state=in_sync)
        program.ok("topic", "create", "t")
        sent = program("produce", "t", stdin="kept\n")
        assert sent.code == 0, sent
