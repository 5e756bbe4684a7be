"""`make bench`: its names, its result file, and that it does not count work that was refused."""

import json
from pathlib import Path

import pytest

from horolog.bench import fixture
from horolog.bench.__main__ import main
from horolog.bench.brokers import broker, sets
from horolog.bench.figure import quantile
from horolog.bench.figures import NAMES
from horolog.bench.raw_client import Refused, check_end, encoded
from horolog.testing.requests import create_topic, fetch, produce

FIXED_NAMES = set(
    """
    echo_p50 produce_100B_16KiB produce_100B_64KiB produce_100B_1MiB produce_1KiB_64KiB
    produce_100B_growing produce_1KiB_growing file_write_new produce_100B_interpreted produce_one
    produce_one_pipelined durable_acks durable_acks_p99 fetch_64KiB fetch_1MiB find_time_1
    find_time_1000 find_time_10000 latency_count_cost recovery start_empty start_3500 rss_idle
    rss_3500 fast_beside_slow client_send client_send_batch client_columns
    """.split()  # noqa: SIM905
)


def test_the_names_are_those_that_others_compare() -> None:
    assert set(NAMES) == FIXED_NAMES


def test_a_measurement_prints_a_row_and_writes_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["echo_p50"]) == 0
    result = json.loads((tmp_path / "build" / "bench.json").read_text())
    assert result["mode"] in ("compiled", "interpreted")
    (figure,) = result["figures"]
    assert figure.pop("value") > 0
    assert figure == {"name": "echo_p50", "unit": "s", "beside": None, "ratio": None}
    assert capsys.readouterr().out.startswith("echo_p50 ")


def test_an_unknown_name_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["echo_p51"]) == 2
    assert "echo_p51; there are echo_p50, " in capsys.readouterr().err


def test_sets_that_were_refused_are_no_work_done() -> None:
    with broker() as (_, client):
        client.call(create_topic("bench", max_message_bytes=1000))
        data, count = sets(2000, 16 << 10)
        client.pipeline(encoded(produce("bench", data, acks=1)), 1, 5, 2)
        with pytest.raises(Refused, match=f"ends at offset 0, although {5 * count} messages"):
            check_end(client, "bench", 5 * count)


def test_answers_come_whole_however_they_are_cut() -> None:
    with broker() as (_, client):
        client.call(create_topic("bench"))
        data, count = sets(1000, 900_000)
        client.pipeline(encoded(produce("bench", data, acks=1)), 1, 8, 4)
        check_end(client, "bench", 8 * count)
        wanted = [5000, 100_000, 10_000, 700_000, 2000]
        for size in wanted:
            client.send(encoded(fetch("bench", (0, 0), partition_max_bytes=size)))
        found = [len(client.answer()) for _ in wanted]
        assert [size - found[0] + wanted[0] for size in found] == pytest.approx(wanted, abs=8)


def test_a_quantile_is_one_of_the_values() -> None:
    assert quantile([5.0, 1.0, 4.0, 2.0, 3.0], 0.5) == 3.0
    assert quantile(range(1, 101), 0.99) == 99
    assert quantile([7.0], 0.99) == 7.0


def test_how_long_the_fixture_takes_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert fixture.main(tests=1) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["fixture_start", "fixture_start_p90", "fixture_stop", "fixture_stop_p90"]
