"""Append times on the command line: `offsets --by`, `consume --append-time`, `dump`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.testing.broker import BrokerThread
from horolog.testing.program import Program


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """Two messages of long ago, appended one after the other."""
    with BrokerThread(tmp_path_factory.mktemp("server") / "data") as running:
        program = Program(running.address)
        program.ok("topic", "create", "t", "--set", "retention.ms=-1")
        for value in ("a", "b"):
            line = f'{{"value": "{value}", "timestamp_ms": 1479144272509}}\n'
            program.ok("produce", "t", "--json", stdin=line)
            running.clock.step(0.002)  # another append time
        yield running


@pytest.fixture(scope="module")
def program(server: BrokerThread) -> Program:
    return Program(server.address)


@pytest.fixture(scope="module")
def times(program: Program) -> list[int]:
    """The append times of the two."""
    lines = program.ok("consume", "t", "--json", "--append-time").objects
    return [line["append_time_ms"] for line in lines]


def test_consume_adds_it_only_when_asked(
    server: BrokerThread, program: Program, times: list[int]
) -> None:
    plain = program.ok("consume", "t", "--json").objects
    names = ["partition", "offset", "timestamp_ms", "timestamp_type", "key", "value"]
    assert [list(line) for line in plain] == [names] * 2
    timed = program.ok("consume", "t", "--json", "--append-time").objects
    assert [list(line) for line in timed] == [[*names, "append_time_ms"]] * 2
    now_ms = server.clock.now_ms()
    assert now_ms - 3_600_000 < times[0] < times[1] <= now_ms


def test_consume_for_people(program: Program) -> None:
    lines = program.ok("consume", "t", "--append-time").out.splitlines()
    for line in lines:
        timestamp, append_time, *_ = line.split()
        assert timestamp == "2016-11-14T17:24:32.509Z"
        assert append_time.startswith("20")
        assert append_time > timestamp
    assert len(lines[0]) > len(program.ok("consume", "t").out.splitlines()[0])


def test_offsets_by_append(program: Program, times: list[int]) -> None:
    places = [str(times[0]), str(times[0] + 1), str(times[1] + 1), "earliest", "latest"]
    arguments = [part for place in places for part in ("--at", place)]
    found = program.ok("offsets", "t", "--by", "append", *arguments, "--json").objects
    assert [(line["offset"], line["timestamp_ms"]) for line in found] == [
        (0, times[0]),
        (1, times[1]),
        (None, None),
        (0, None),
        (2, None),
    ]
    own = program.ok("offsets", "t", "--at", str(times[0]), "--json").objects
    assert own[0]["offset"] is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--by", "append", "--at", "largest"], "not by append times"),
        (["--by", "appended"], "append"),
    ],
)
def test_offsets_refuses(program: Program, arguments: list[str], text: str) -> None:
    refused = program("offsets", "t", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert text in refused.err


def test_dump(server: BrokerThread, program: Program, times: list[int]) -> None:
    path = server.data_dir / "t-0" / f"{0:020d}.appendtime"
    assert program.ok("dump", path, "--json").objects == [
        {"position": 0, "offset": 0, "append_time_ms": times[0]},
        {"position": 12, "offset": 1, "append_time_ms": times[1]},
    ]
    heading, first, _ = program.ok("dump", path).out.splitlines()
    assert "appended at" in heading
    assert first.split()[:2] == ["0", "0"]


def test_dump_of_what_is_unknown_and_torn(program: Program, tmp_path: Path) -> None:
    path = tmp_path / f"{7:020d}.appendtime"
    path.write_bytes(bytes.fromhex("00000002 ffffffffffffffff 000000"))
    result = program("dump", path, "--json")
    assert result.code == 1
    entry, remark = result.objects
    assert entry == {"position": 0, "offset": 9, "append_time_ms": None}
    assert remark["position"] == 12
