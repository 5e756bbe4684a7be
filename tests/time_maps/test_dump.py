"""`horolog dump` of a time map."""

from pathlib import Path

import pytest

from horolog.testing.logs import LogFolder
from horolog.testing.program import Program

from .mapped import START_MS, filled


@pytest.fixture
def path(folder: LogFolder) -> Path:
    """A map of a segment that begins at offset 280."""
    filled(folder)
    return folder.path / f"{280:020d}.timemap"


@pytest.fixture
def run(tmp_path: Path) -> Program:
    return Program(cwd=tmp_path)


def test_every_block_is_shown(run: Program, folder: LogFolder, path: Path) -> None:
    blocks = run.ok("dump", path, "--json").objects
    segment = folder.log.segments[1]
    times = [(record.offset, record.timestamp_ms) for record in folder.records()]
    offset, log_position, position = 280, 0, -1
    for block in blocks:
        assert block["offset"] == offset
        assert block["log_position"] == log_position
        assert block["position"] > position
        offset, position = block["next_offset"], block["position"]
        log_position += block["size_bytes"]
        inside = [ms for at, ms in times if block["offset"] <= at < offset]
        assert block["untimed"] == 0
        assert sum(span["messages"] for span in block["spans"]) == len(inside) > 0
        assert min(span["first_ms"] for span in block["spans"]) == min(inside)
        assert max(span["last_ms"] for span in block["spans"]) == max(inside)
    assert (offset, log_position) == (segment.next_offset, segment.size_bytes)
    assert blocks[0]["position"] == 0


@pytest.mark.parametrize("suffix", ["", ".deleted", ".broken"])
def test_for_people_it_is_a_line_for_each_block(run: Program, path: Path, suffix: str) -> None:
    path = path.rename(path.with_name(path.name + suffix))
    objects = run.ok("dump", path, "--json").objects
    heading, *lines = run.ok("dump", path).out.splitlines()
    assert "messages of times" in heading
    assert [line.split()[0] for line in lines] == [str(one["position"]) for one in objects]
    at, first, last, log_byte, size, messages, *_ = lines[0].split()
    assert (at, first, log_byte) == ("0", "280", "0")
    assert int(last) == objects[0]["next_offset"] - 1
    assert int(size) == objects[0]["size_bytes"]
    assert int(messages) == objects[0]["spans"][0]["messages"]
    assert "2016-11-14T" in lines[0]
    assert objects[0]["spans"][0]["first_ms"] > START_MS


def test_a_map_that_is_torn_is_shown_as_far_as_it_goes(run: Program, path: Path) -> None:
    whole = run.ok("dump", path, "--json").objects
    path.write_bytes(path.read_bytes()[:-1])
    result = run("dump", path, "--json")
    assert result.code == 1
    *blocks, remark = result.objects
    assert blocks == whole[:-1]
    assert (remark["position"], remark["error"]) == (whole[-1]["position"], True)


def test_messages_without_a_time_are_told(run: Program, tmp_path: Path) -> None:
    path = tmp_path / f"{7:020d}.timemap"
    path.write_bytes(bytes([100, 3, 3, 0]))
    (block,) = run.ok("dump", path, "--json").objects
    assert (block["offset"], block["next_offset"], block["untimed"]) == (7, 10, 3)
    assert run.ok("dump", path).out.splitlines()[-1].endswith("  3 without a time")
