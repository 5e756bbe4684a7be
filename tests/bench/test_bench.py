"""`make bench`: its names, its result file, and that it does not count work that was refused."""

import json
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from horolog.bench import fixture
from horolog.bench.__main__ import main
from horolog.bench.brokers import MIB, broker, sets
from horolog.bench.disk import durable_acks, growth
from horolog.bench.figure import Figure, median_ratio, quantile, rates
from horolog.bench.figures import MEASUREMENTS, NAMES
from horolog.bench.guard.costs import RULES, acl_cost, add_rules, quota_held, tls_cost
from horolog.bench.raw_client import RefusedRequest, check_end, encoded
from horolog.bench.requests import batch_rate, fetch_rate, produce_rate
from horolog.bench.socket_to_file import writing
from horolog.bench.starting import index_memory
from horolog.bench.window_topics import produce_beside_window, window_topic
from horolog.bench.windows import SHAPES, first_looks, measured, window_hour
from horolog.protocol.api.security.acl_terms import Operation, ResourceType
from horolog.protocol.records.kernel import FORM
from horolog.server.security.acl_store import Acls
from horolog.server.security.acls import Resource
from horolog.testing.access import StoredAccess
from horolog.testing.requests import create_topic, fetch, produce

FIXED_NAMES = set(
    """
    echo_p50 produce_100B_16KiB produce_100B_64KiB produce_100B_64KiB_v2 produce_100B_900KiB
    produce_100B_1MiB produce_1KiB_64KiB produce_1KiB_900KiB produce_100B_growing
    produce_1KiB_growing socket_to_file file_write_new produce_one produce_one_pipelined
    durable_acks durable_acks_p99 disk_syncs_32 disk_syncs_32_p99 fetch_64KiB fetch_1MiB fetch_8MiB
    find_time_1 find_time_1000 find_time_10000 latency_count_cost recovery start_empty start_3500
    rss_idle rss_3500 fast_beside_slow fast_beside_bulk window_hour window_hour_first count_by_time
    index_memory
    produce_tls fetch_1MiB_tls produce_one_tls produce_acls produce_one_acls acl_check_cost
    time_map_cost time_map_cost_jitter window_topic window_topic_cpu produce_beside_window
    longest_turn quota_held quota_beside client_send client_send_batch client_columns client_arrow
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
    assert result["mode"] == FORM
    (figure,) = result["figures"]
    assert figure.pop("value") > 0
    assert figure == {"name": "echo_p50", "unit": "s", "beside": None, "ratio": None}
    assert capsys.readouterr().out.startswith("echo_p50 ")


def test_an_unknown_name_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["echo_p51"]) == 2
    assert "echo_p51; there are echo_p50, " in capsys.readouterr().err


def test_an_hour_is_read_and_counted_exactly() -> None:
    hour, first, counted = window_hour(messages=20_000, rounds=1)
    assert hour.ratio is not None
    assert hour.value > 0
    assert 1 <= hour.ratio < 1.5
    assert first.value > 0
    assert counted.value > 0


def test_a_window_is_read_by_its_topic_and_by_itself() -> None:
    found, cost = window_topic(messages=20_000, rounds=1)
    for figure in (found, cost):
        assert figure.value > 0
        assert figure.ratio is not None
        assert figure.ratio > 0


def test_a_producer_beside_a_waiting_reader_is_measured() -> None:
    (found,) = produce_beside_window(turn_bytes=1 << 20, rounds=2)
    assert found.value > 0
    assert found.ratio is not None
    assert found.ratio > 0


def test_the_same_is_done_over_tls() -> None:
    for figure in tls_cost(turn_bytes=1 << 20, log_bytes=4 << 20, rounds=1, seconds=0.02):
        assert figure.ratio is not None
        assert figure.ratio > 0


def test_a_client_at_its_quota_is_measured() -> None:
    # The quota lets it send at once what it may send in 3 s: then nothing comes for up to 3 s.
    held, beside = quota_held(seconds=3.5, requests=5)
    assert held.ratio == held.value / (8 * MIB)
    assert held.ratio > 0
    assert beside.value > 0


def test_the_same_is_done_by_those_who_have_a_right_to() -> None:
    found = taken(acl_cost(turn_bytes=1 << 20, rounds=2, seconds=0.02))
    assert found.keys() == {"produce_acls", "produce_one_acls", "acl_check_cost"}
    assert found["produce_acls"].beside == found["produce_one_acls"].beside == "acls_off"
    assert (found["produce_acls"].ratio or 0) > 0


def test_a_broker_with_rules_as_measured_lets_its_producer_in(tmp_path: Path) -> None:
    add_rules(tmp_path / "data")
    acls = Acls(StoredAccess(tmp_path / "data").state.rules)
    assert len(acls.table.acls) == RULES
    topic = Resource(ResourceType.TOPIC, "produced")
    for operation, allowed in ((Operation.WRITE, True), (Operation.DELETE, False)):
        decision = acls.table.decide("User:ANONYMOUS", "127.0.0.1", operation, topic)
        assert decision.allowed is allowed


@pytest.mark.soak
def test_searches_in_sparse_segments_find_what_is_there() -> None:
    (figure,) = index_memory(segments=3, segment_bytes=1 << 20)
    assert figure.value > 1 << 20


def test_maps_of_every_shape_name_all_blocks_that_hold_an_answer(tmp_path: Path) -> None:
    for number, (shape, times) in enumerate(SHAPES):
        row = measured(shape, list(times(5_000, Random(1))), tmp_path / f"t-{number}")
        assert row.map_share < 0.02
        assert row.shape in row.text


def test_sets_that_were_refused_are_no_work_done() -> None:
    with broker() as (_, client):
        client.call(create_topic("bench", max_message_bytes=1000))
        data, count = sets(2000, 16 << 10)
        client.pipeline(encoded(produce("bench", data, acks=1)), 1, 5, 2)
        with pytest.raises(
            RefusedRequest, match=f"ends at offset 0, although {5 * count} messages"
        ):
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


def taken(figures: Iterable[Figure]) -> dict[str, Figure]:
    """A measurement's figures by their names; each has a value."""
    found = {figure.name: figure for figure in figures}
    assert all(figure.value > 0 for figure in found.values())
    return found


def names_with(name: str) -> set[str]:
    """The names that are measured together with one."""
    return next(set(each.names) for each in MEASUREMENTS if name in each.names)


@pytest.mark.parametrize("value_bytes", [100, 1024])
def test_sets_of_900_kib_are_taken(value_bytes: int) -> None:
    found = produce_rate("x", value_bytes, 900 << 10, turn_bytes=0, rounds=1, seconds=0.01)
    (figure,) = taken(found).values()
    assert (figure.unit, figure.ratio) == ("msg/s", None)


def test_batches_are_measured_beside_those_of_kafkas_port() -> None:
    found = taken(batch_rate("x", 100, 64 << 10, turn_bytes=0, rounds=1, seconds=0.01))
    assert set(found) == {"x", "x_kafka"}
    assert found["x"].beside == "x_kafka"
    assert found["x"].ratio == found["x"].value / found["x_kafka"].value


def test_fetches_of_8_mib_are_whole() -> None:
    (figure,) = taken(
        fetch_rate("x", 8 * MIB, 4, log_bytes=16 * MIB, rounds=1, seconds=0.01)
    ).values()
    assert figure.unit == "bytes/s"


def test_growing_logs_are_measured_beside_a_process_that_receives_and_writes() -> None:
    found = taken(growth(rounds=1, slices=3, slice_bytes=MIB))
    assert set(found) == names_with("socket_to_file")
    for name in ("produce_100B_growing", "produce_1KiB_growing"):
        assert found[name].beside == "socket_to_file"
        assert found[name].ratio
    assert found["file_write_new"].ratio is None


def test_durable_acks_are_measured_beside_a_loop_that_syncs() -> None:
    found = taken(durable_acks(turn_bytes=MIB, rounds=1, seconds=0.01))
    assert set(found) == names_with("disk_syncs_32")
    for name, beside in (
        ("durable_acks", "disk_syncs_32"),
        ("durable_acks_p99", "disk_syncs_32_p99"),
    ):
        assert found[name].beside == beside
        assert found[name].ratio == found[name].value / found[beside].value


def test_a_process_writes_every_set_that_it_receives(tmp_path: Path) -> None:
    path = tmp_path / "received"
    with writing(path, b"set", 10) as send:
        for rounds in (1, 2):
            send(4)
            assert path.read_bytes() == b"set" * 10 * rounds


def test_a_ratio_is_the_median_of_those_of_the_rounds() -> None:
    assert median_ratio([3.0, 20.0, 4.0], [1.0, 10.0, 4.0]) == 2.0


def test_a_round_has_work_however_short_it_is() -> None:
    assert min(rates(lambda: 1.0, rounds=3, seconds=0.0)) > 0


def test_a_quantile_is_one_of_the_values() -> None:
    assert quantile([5.0, 1.0, 4.0, 2.0, 3.0], 0.5) == 3.0
    assert quantile(range(1, 101), 0.99) == 99
    assert quantile([7.0], 0.99) == 7.0


def test_how_long_the_fixture_takes_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert fixture.main(tests=1, rounds=1) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    often = [f"fixture_{each}{end}" for each in ("start", "stop") for end in ("", "_p90")]
    once = ["cluster_start", "before_test", "snapshot", "restore", "after_test"]
    beside = [f"first_message_{each}" for each in ("horolog", "librdkafka")]
    assert names == [*often, *(f"fixture_{each}" for each in once), *beside]


def test_a_segment_is_found_among_many_and_after_changes() -> None:
    assert min(first_looks(60)) > 0
