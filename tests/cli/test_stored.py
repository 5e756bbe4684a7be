"""`horolog dump` and `horolog verify`: stored files, without a broker."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Program

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-0.10.2"
Run = Callable[..., CommandResult]

FIRST = f"{0:020d}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition's folder, to be damaged."""
    return Path(shutil.copytree(GOLDEN / "v1-outliers" / "clean", tmp_path / "v1-outliers-0"))


def test_dump_of_a_log_has_every_message(run: Run, folder: Path) -> None:
    expected = json.loads((GOLDEN / "v1-outliers" / "expected.json").read_text())["messages"]
    found = run("dump", folder / f"{FIRST}.log", "--json").objects
    assert [
        [one["offset"], one["timestamp_ms"], one["key"], one["value"]] for one in found
    ] == expected[: len(found)]
    assert all(one["crc_ok"] and one["magic"] == 1 and one["codec"] == "none" for one in found)
    assert found[1]["position"] == found[0]["size_bytes"]


def test_dump_of_the_indexes_has_their_entries(run: Run, folder: Path) -> None:
    messages = run("dump", folder / f"{FIRST}.log", "--json").objects
    position_of = {one["offset"]: one["position"] for one in messages}
    entries = run("dump", folder / f"{FIRST}.index", "--json").objects
    assert len(entries) > 10
    assert all(position_of[one["offset"]] == one["log_position"] for one in entries)
    times = run("dump", folder / f"{FIRST}.timeindex", "--json").objects
    assert times
    for one in times:
        older = [m["timestamp_ms"] for m in messages if m["offset"] <= one["offset"]]
        assert max(older) == one["timestamp_ms"]


def test_dump_for_people_is_a_line_for_each_entry(run: Run, folder: Path) -> None:
    for kind in ("log", "index", "timeindex"):
        objects = run("dump", folder / f"{FIRST}.{kind}", "--json").objects
        heading, *lines = run("dump", folder / f"{FIRST}.{kind}").out.splitlines()
        assert "offset" in heading
        assert [line.split()[0] for line in lines] == [str(one["position"]) for one in objects]


def test_dump_of_damage_shows_what_can_be_read_and_fails(run: Run, folder: Path) -> None:
    log = folder / f"{FIRST}.log"
    before = run("dump", log, "--json").objects
    with log.open("r+b") as file:
        file.seek(before[5]["position"] + 40)
        file.write(b"\xff\xff")
        file.truncate(before[9]["position"] + 5)
    result = run("dump", log, "--json", code=1)
    assert [one["crc_ok"] for one in result.objects[:-1]] == [i != 5 for i in range(9)]
    assert result.objects[-1]["error"] is True
    assert result.objects[-1]["position"] == before[9]["position"]


@pytest.mark.parametrize("kind", ["index", "timeindex", "timemap", "appendtime"])
def test_dump_of_an_index_of_which_nothing_is_true_fails(run: Run, folder: Path, kind: str) -> None:
    path = folder / f"{FIRST}.{kind}"
    path.write_bytes(bytes.fromhex("ff" * 12 + "00" * 12 + "ff" * 12 + "7f" * 7))
    wrong = [one for one in run("dump", path, "--json", code=1).objects if one.get("error")]
    assert wrong
    people = run("dump", path, code=1)
    assert sum(" wrong: " in line for line in people.out.splitlines()) == len(wrong)
    assert people.err == ""


@pytest.mark.parametrize("topic", ["v1-outliers", "v0-gzip", "mixed-v0-then-v1"])
def test_verify_finds_nothing_wrong_with_what_kafka_wrote(run: Run, topic: str) -> None:
    result = run("verify", GOLDEN / topic / "clean", "--json")
    assert not any(one["error"] for one in result.objects)


def test_verify_of_a_data_directory_cleanly_stopped(run: Run, tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as broker:
        Program(broker.address).ok("produce", "t", "--compression", "lz4", stdin="a\nb\n")
    assert run("verify", tmp_path / "data").out == f"{tmp_path / 'data'}: nothing is wrong\n"
    assert run("verify", tmp_path / "data", "--json").objects == []


def test_verify_names_what_is_wrong_and_fails(run: Run, folder: Path) -> None:
    log = folder / f"{FIRST}.log"
    with log.open("r+b") as file:
        file.seek(5000)
        file.write(b"\xff\xff")
    result = run("verify", folder, "--json", code=1)
    wrong = [one for one in result.objects if one["error"]]
    assert {one["path"] for one in wrong} == {str(log)}
    assert all(one["rule"] and one["advice"] for one in wrong)
    assert 4000 < wrong[0]["position"] <= 5000
    people = run("verify", folder, code=1)
    assert people.out.startswith(f"wrong  {log} at byte {wrong[0]['position']}: ")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["dump", "notes.txt"], 2, "notes.txt is none of .log"),
        (["dump", "nothing-here"], 1, "No such file"),
        (["dump", f"{FIRST}.log"], 1, "No such file"),
        (["verify", "."], 2, "neither a data directory nor"),
        (["verify", "nowhere"], 1, "No such file"),
    ],
)
def test_what_cannot_be_looked_at_is_named(
    tmp_path: Path, arguments: list[str], code: int, text: str
) -> None:
    (tmp_path / "notes.txt").touch()
    result = Program(cwd=tmp_path)(*arguments)
    assert (result.code, result.out) == (code, "")
    assert text in result.err
    assert result.err.count("\n") == 1
