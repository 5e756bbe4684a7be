"""`make bench-kafka`: its figures, its result file, and what it says without Java."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from horolog.bench.beside_kafka import MEASUREMENTS, ComparedSides, compared, main
from horolog.bench.brokers import batch
from horolog.protocol.records.batch import read_header


def test_a_ratio_is_the_median_of_those_of_the_rounds() -> None:
    found = {"kafka": [1.0, 10.0, 4.0], "written": [3.0, 20.0, 4.0], "fsync": [1.0, 2.0, 3.0]}
    assert compared("x", "msg/s", found) == ComparedSides("x", "msg/s", 4.0, 4.0, 2.0, 2.0)


@pytest.mark.parametrize("set_bytes", [16 << 10, 64 << 10, 900 << 10])
@pytest.mark.parametrize("value_bytes", [100, 1024])
def test_a_batch_is_as_large_as_it_should_be(value_bytes: int, set_bytes: int) -> None:
    data, count = batch(value_bytes, set_bytes)
    assert read_header(data).record_count == count
    assert abs(len(data) - set_bytes) < max(0.03 * set_bytes, value_bytes)


def test_produces_and_fetches_of_all_sizes_are_measured() -> None:
    sizes = ("16KiB", "64KiB", "900KiB")
    produces = {f"produce_{value}_{size}" for value in ("100B", "1KiB") for size in sizes}
    assert produces | {"fetch_64KiB", "fetch_1MiB", "fetch_8MiB"} <= set(MEASUREMENTS)


def test_an_unknown_name_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["echo"]) == 2
    assert "echo; there are start, " in capsys.readouterr().err


def test_without_java_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main([]) == 1
    assert "apt-get install default-jre-headless maven" in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_it_measures_both(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    require_program: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    require_program("java")
    require_program("mvn")
    monkeypatch.chdir(tmp_path)
    assert main(["start"]) == 0
    written = json.loads((tmp_path / "build" / "bench-kafka.json").read_text())
    (figure,) = written["figures"]
    assert figure["name"] == "start"
    assert figure["ratio"] == figure["horolog"] / figure["kafka"] > 0
    assert "start " in capsys.readouterr().out
