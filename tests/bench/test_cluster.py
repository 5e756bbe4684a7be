"""`make bench-cluster`: what it measures is right, and it says what it left out. In seconds."""

import json
import os
from functools import partial
from pathlib import Path

import pytest

from horolog.bench import cluster
from horolog.bench.brokers import MIB
from horolog.bench.cluster import copying
from horolog.bench.cluster_producing import idle, least, producing
from horolog.protocol.records.kernel import FORM


def test_names_that_are_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster.main(["copy", "fly"]) == 2
    there = "copy, produce, least, idle, beside_kafka"
    assert f"unknown: fly; there are {there}" in capsys.readouterr().err


def test_without_java_the_rest_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.devnull)
    kinds = ("copy_100B_v2_lz4",)
    small = partial(copying, kinds, rounds=1, slices=2, slice_bytes=12 * MIB)
    only = {"copy": small, "beside_kafka": cluster.MEASUREMENTS["beside_kafka"]}
    monkeypatch.setattr(cluster, "MEASUREMENTS", only)
    assert cluster.main([]) == 0
    assert "beside_kafka is left out: Apache Kafka needs" in capsys.readouterr().err
    result = json.loads((tmp_path / "build" / "bench-cluster.json").read_text())
    assert result["mode"] == FORM
    found = {figure["name"]: figure for figure in result["figures"]}
    assert list(found) == ["copy_100B_v2_lz4", "socket_to_file"]
    assert found["copy_100B_v2_lz4"]["beside"] == "socket_to_file"
    assert found["copy_100B_v2_lz4"]["ratio"] > 0
    assert cluster.main(["beside_kafka"]) == 1


def test_a_leader_with_a_follower_beside_one_without() -> None:
    found = list(producing(turn_bytes=MIB, rounds=1, seconds=0.05, ones=5))
    assert [one.name for one in found if one.ratio] == [
        "produce_acks_1",
        "produce_acks_all",
        "produce_one_acks_all",
    ]


def test_a_least_leader_with_a_follower_beside_one_without() -> None:
    led, alone = least(turn_bytes=MIB, rounds=1, seconds=0.05)
    assert (led.name, led.beside, alone.name) == ("least_acks_all", alone.name, led.beside)
    assert led.ratio is not None
    assert led.ratio > 0


def test_an_idle_follower_is_measured() -> None:
    leader, follower = idle(partitions=20, seconds=0.5, settled=0.1)
    assert (leader.name, follower.name) == ("idle_leader_3500", "idle_follower_3500")
    assert follower.value >= 0
