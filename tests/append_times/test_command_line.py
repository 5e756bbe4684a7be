"""Append times on the command line: `offsets --by`, `consume --append-time`, `dump`."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.clock import SystemClock
from horolog.testing.program import ServerProcess, serving


@pytest.fixture(scope="module")
def began_ms() -> int:
    """A time before the two were appended."""
    return SystemClock().now_ms()


@pytest.fixture(scope="module")
def server(began_ms: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Two messages of long ago, appended one after the other."""
    with serving(tmp_path_factory.mktemp("server") / "data") as running:
        running.program.ok("topic", "create", "t", "--set", "retention.ms=-1")
        for value in ("a", "b"):
            line = f'{{"value": "{value}", "timestamp_ms": 1479144272509}}\n'
            running.program.ok("produce", "t", "--json", stdin=line)
            time.sleep(0.002)  # another append time
        yield running


@pytest.fixture(scope="module")
def times(server: ServerProcess) -> list[int]:
    """The append times of the two."""
    lines = server.program.ok("consume", "t", "--json", "--append-time").objects
    return [line["append_time_ms"] for line in lines]


def test_consume_adds_it_only_when_asked(
    server: ServerProcess, times: list[int], began_ms: int
) -> None:
    plain = server.program.ok("consume", "t", "--json").objects
    names = ["partition", "offset", "timestamp_ms", "timestamp_type", "key", "value"]
    assert [list(line) for line in plain] == [names] * 2
    timed = server.program.ok("consume", "t", "--json", "--append-time").objects
    assert [list(line) for line in timed] == [[*names, "append_time_ms"]] * 2
    assert began_ms <= times[0] < times[1] <= SystemClock().now_ms()


def test_consume_for_people(server: ServerProcess) -> None:
    lines = server.program.ok("consume", "t", "--append-time").out.splitlines()
    for line in lines:
        timestamp, append_time, *_ = line.split()
        assert timestamp == "2016-11-14T17:24:32.509Z"
        assert append_time.startswith("20")
        assert append_time > timestamp
    assert len(lines[0]) > len(server.program.ok("consume", "t").out.splitlines()[0])


def test_offsets_by_append(server: ServerProcess, times: list[int]) -> None:
    places = [str(times[0]), str(times[0] + 1), str(times[1] + 1), "earliest", "latest"]
    arguments = [part for place in places for part in ("--at", place)]
    found = server.program.ok("offsets", "t", "--by", "append", *arguments, "--json").objects
    assert [(line["offset"], line["timestamp_ms"]) for line in found] == [
        (0, times[0]),
        (1, times[1]),
        (None, None),
        (0, None),
        (2, None),
    ]
    own = server.program.ok("offsets", "t", "--at", str(times[0]), "--json").objects
    assert own[0]["offset"] is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--by", "append", "--at", "largest"], "not by append times"),
        (["--by", "appended"], "append"),
    ],
)
def test_offsets_refuses(server: ServerProcess, arguments: list[str], text: str) -> None:
    refused = server.program("offsets", "t", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert text in refused.err


def test_dump(server: ServerProcess, times: list[int]) -> None:
    path = server.data_dir / "t-0" / f"{0:020d}.appendtime"
    assert server.program.ok("dump", path, "--json").objects == [
        {"position": 0, "offset": 0, "append_time_ms": times[0]},
        {"position": 12, "offset": 1, "append_time_ms": times[1]},
    ]
    heading, first, _ = server.program.ok("dump", path).out.splitlines()
    assert "appended at" in heading
    assert first.split()[:2] == ["0", "0"]


def test_dump_of_what_is_unknown_and_torn(server: ServerProcess, tmp_path: Path) -> None:
    path = tmp_path / f"{7:020d}.appendtime"
    path.write_bytes(bytes.fromhex("00000002 ffffffffffffffff 000000"))
    result = server.program("dump", path, "--json")
    assert result.code == 1
    entry, remark = result.objects
    assert entry == {"position": 0, "offset": 9, "append_time_ms": None}
    assert remark["position"] == 12
