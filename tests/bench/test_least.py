"""The processes that the broker is held against do what they are said to do."""

from pathlib import Path

import pytest

from horolog.bench.brokers import echo_request, sets
from horolog.bench.least.beside_loops import LEAST
from horolog.bench.least.loops import DOES, FETCHED_BYTES, looping
from horolog.bench.raw_client import decoded, encoded
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.records.messages.message import entries
from horolog.testing.requests import produce, result

ANSWER = bytes.fromhex("93 01 00 c0")
"""A frame that a client takes for an answer."""

SETS = 40


def test_all_of_them_are_measured() -> None:
    assert {does for leasts in LEAST.values() for does in leasts} == set(DOES)


def test_a_process_that_appends_stores_what_it_answers(tmp_path: Path) -> None:
    data, _ = sets(100, 1)
    request = encoded(produce("bench", data, acks=1))
    version = PRODUCE.last_version(native=True)
    with looping(tmp_path, "appends", b"") as (client, _):
        client.send(request * SETS)
        frames = [bytes(client.answer()) for _ in range(SETS)]
    answers = [result(decoded(PRODUCE, version, frame)) for frame in frames]
    assert [answer.base_offset for answer in answers] == list(range(SETS))
    assert {answer.partition for answer in answers} == {0}
    log, times = ((tmp_path / "appends" / name).read_bytes() for name in ("log", "times"))
    assert [entry.offset for entry in entries(log, 0, len(log))] == list(range(SETS))
    assert [int.from_bytes(times[at : at + 4], "big") for at in range(0, len(times), 12)] == list(
        range(SETS)
    )


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
