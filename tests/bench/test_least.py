"""The processes that the broker is held against do what they are said to do."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from horolog.bench.beside_least import LEAST
from horolog.bench.brokers import batch, echo_request, sets
from horolog.bench.disk import DURABLE
from horolog.bench.least import DOES, FETCHED_BYTES, Appending, leading, looping, syncing
from horolog.bench.least_start import libraries, start_seconds
from horolog.bench.raw_client import decoded, encoded, newest
from horolog.protocol.api.encodings import Encoding
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.native import frames as native
from horolog.protocol.records.messages.sets import entries
from horolog.testing.requests import produce, result

ANSWER = bytes.fromhex("93 01 00 c0")
"""A frame that a client takes for an answer."""

SETS = 40


def test_all_of_them_are_measured() -> None:
    elsewhere = {"rolls", "kafka"}
    assert {does for leasts in LEAST.values() for does in leasts} | elsewhere == set(DOES)


@pytest.mark.parametrize(
    ("does", "made", "encoding"),
    [("appends", sets, native), ("rolls", batch, native), ("kafka", batch, kafka)],
)
def test_a_process_that_appends_stores_what_it_answers(
    tmp_path: Path, does: str, made: Callable[[int, int], tuple[bytes, int]], encoding: Encoding
) -> None:
    data, _ = made(100, 1)
    request = encoded(produce("bench", data, acks=1), encoding=encoding)
    version = newest(PRODUCE, encoding)
    with looping(tmp_path, does) as (client, _):
        client.send(request * SETS)
        frames = [bytes(client.answer()) for _ in range(SETS)]
    answers = [result(decoded(PRODUCE, version, frame, encoding)) for frame in frames]
    assert [answer.base_offset for answer in answers] == list(range(SETS))
    assert {answer.partition for answer in answers} == {0}
    log, times = ((tmp_path / does / name).read_bytes() for name in ("log", "times"))
    assert [entry.offset for entry in entries(log, 0, len(log))] == list(range(SETS))
    assert [int.from_bytes(times[at : at + 4], "big") for at in range(0, len(times), 12)] == list(
        range(SETS)
    )


def test_a_process_that_syncs_has_what_it_answers(tmp_path: Path) -> None:
    request = encoded(produce("bench", sets(100, 1)[0], acks=DURABLE))
    version = PRODUCE.last_version(native=True)
    with syncing(tmp_path, 3) as clients:
        found = []
        for client in clients * 2:
            answer = result(decoded(PRODUCE, version, bytes(client.exchange(request))))
            found.append(answer.base_offset)
            log = (tmp_path / "synced" / "log").read_bytes()
            assert len(list(entries(log, 0, len(log)))) == len(found)
        for client in clients:
            client.send(request)
        found += [
            result(decoded(PRODUCE, version, bytes(client.answer()))).base_offset
            for client in clients
        ]
    assert found[:6] == list(range(6))
    assert sorted(found[6:]) == [6, 7, 8]


@pytest.mark.parametrize("followed", [True, False])
def test_a_follower_has_what_its_leader_answers(tmp_path: Path, followed: bool) -> None:
    request = encoded(produce("bench", sets(100, 1)[0], acks=-1))
    version = newest(PRODUCE, native)
    logs = [tmp_path / name / "log" for name in ("leader", "follower")]
    with leading(tmp_path, followed=followed) as client:
        for number in range(SETS):
            answer = result(decoded(PRODUCE, version, bytes(client.exchange(request))))
            assert answer.base_offset == number
            stored = [path.read_bytes() for path in logs if path.exists()]
            assert len(stored) == 1 + followed
            assert len(list(entries(stored[-1], 0, len(stored[-1])))) == number + 1
        assert len(set(stored)) == 1


def test_a_log_beside_kafka_has_files_that_go(tmp_path: Path) -> None:
    data, _ = sets(100, 1)
    frame = encoded(produce("bench", data, acks=1))[4:]
    size_bytes = 3 * len(data)
    with closing(Appending(tmp_path, file_bytes=size_bytes, kept_bytes=2 * size_bytes)) as it:
        for _ in range(4 * 3 + 1):
            it.append([bytearray(frame)])
    sets_in = {path.name: path.stat().st_size // len(data) for path in tmp_path.glob("log*")}
    assert sets_in == {"log2": 3, "log3": 3, "log4": 1}
    assert {path.name for path in tmp_path.glob("times*")} == {"times2", "times3", "times4"}


def test_a_start_without_the_broker_imports_its_libraries_alone() -> None:
    names = libraries()
    assert {"asyncio", "msgspec", "uvloop"} < set(names)
    assert not [name for name in names if name.startswith("horolog")]
    assert start_seconds(["json", "socket"]) > 0
    with pytest.raises(RuntimeError, match="does not listen"):
        start_seconds(["no_such_module"])


def test_a_process_that_writes_keeps_what_came(tmp_path: Path) -> None:
    request = encoded(produce("bench", sets(100, 1)[0], acks=1))
    frame = len(ANSWER).to_bytes(4, "big") + ANSWER
    with looping(tmp_path, "writes", frame) as (client, _):
        for _ in range(3):
            assert client.exchange(request) == ANSWER
    assert (tmp_path / "writes" / "log").read_bytes() == request * 3
    assert (tmp_path / "writes" / "times").stat().st_size == 3 * 12


@pytest.mark.parametrize("does", ["answers", "reads", "fetches"])
def test_each_frame_is_answered(tmp_path: Path, does: str) -> None:
    read = bytes(FETCHED_BYTES) if does == "fetches" else b""
    frame = (len(ANSWER) + len(read)).to_bytes(4, "big") + ANSWER
    with looping(tmp_path, does, frame) as (client, _):
        client.send(echo_request() * 5)
        for _ in range(5):
            assert client.answer() == ANSWER + read
