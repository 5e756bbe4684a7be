"""`horolog demo`, from the ready line to Ctrl-C, on files and on a repository of the test's own."""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from horolog.testing.program import WITH_HTTP, CommandResult, Program, ServerProcess, serving
from horolog.times import parse_time

OLD_MS = 1479144272509
LAST_WORDS = "The broker runs until Ctrl-C."

Demo = tuple[ServerProcess, str]
"""A demo that runs, and its tour."""


def read_tour(server: ServerProcess) -> str:
    """What the demo prints after its ready line, up to its last words."""
    lines: list[str] = []
    assert server.process.stdout is not None
    for line in server.process.stdout:
        lines.append(line)
        if line.startswith(LAST_WORDS):
            return "".join(lines)
    raise AssertionError(f"the demo ended: {''.join(lines)}{server.log.read_text()}")


def unwrapped(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty files, changed in an order that is not that of their names."""
    folder = tmp_path_factory.mktemp("tree")
    for number in range(40):
        path = folder / f"{number % 4}" / f"file-{number}"
        path.parent.mkdir(exist_ok=True)
        path.touch()
        time_ns = (OLD_MS + number * 7919 % 41 * 86_400_000) * 1_000_000
        os.utime(path, ns=(time_ns, time_ns))
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "left-out").touch()
    return folder


@pytest.fixture(scope="module")
def demo(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    data = tmp_path_factory.mktemp("demo") / "data"
    with serving(data, *WITH_HTTP, "--history", tree, command="demo") as server:
        yield server, read_tour(server)
        assert server.stop(signal.SIGINT) == 0
        assert server.log.read_text() == ""


def test_the_files_times_are_in_the_topic(demo: Demo, tree: Path) -> None:
    server, tour = demo
    read = server.program.ok("consume", "demo-files", "--json").objects
    files = {str(path): path.stat().st_mtime_ns // 10**6 for path in tree.glob("[0-9]/*")}
    assert {one["value"]: one["timestamp_ms"] for one in read} == files
    assert len(read) == 40
    assert "Topic demo-files holds 40 messages" in tour
    times = [one["timestamp_ms"] for one in read]
    late = sum(1 for i, time in enumerate(times) if time < max(times[: i + 1]))
    assert f"{late} of them are older than a message before them" in unwrapped(tour)
    described = server.program.ok("topic", "describe", "demo-files").out
    assert re.search(r"retention\.ms +no limit +topic", described)
    # Weeks of times there and back are no reason to begin a segment.
    assert len(list((server.data_dir / "demo-files-0").glob("*.log"))) == 1


def test_the_tour_shows_each_thing_once(demo: Demo) -> None:
    _, tour = demo
    titles = re.findall(r"^\d\. (.*)$", tour, re.MULTILINE)
    assert [title.split()[0] for title in titles] == [
        *("Real", "Which", "Replay", "Count", "A", "How", "Type")
    ]
    assert "gives the same" in unwrapped(tour)
    assert "INVALID_TIMESTAMP: " in tour
    assert f"timestamp {OLD_MS} (2016-11-14T17:24:32.509Z)" in unwrapped(tour)
    assert re.search(r'horolog_latency_seconds_count\{topic="demo-load"\} \d', tour)
    assert "horolog_max_latency_seconds" in tour


def test_what_it_says_to_type_works_and_answers_the_same(
    demo: Demo,
) -> None:
    _, tour = demo
    commands = {
        words[words.index("horolog") + 1]: words[words.index("horolog") + 1 :]
        for line in tour.partition("Type next")[2].splitlines()
        if "-m horolog " in line and (words := shlex.split(line.rpartition("|")[2]))
    }
    assert set(commands) == {"offsets", "consume", "produce", "topic", "dump"}
    (shown,) = re.findall(r"^ +Offset (\d+):", tour, re.MULTILINE)
    (found,) = Program().ok(*commands["offsets"], "--json").objects
    assert found["offset"] == int(shown)
    for name in ("produce", "topic", "dump"):
        Program().ok(*commands[name], stdin="a\n" if name == "produce" else "")
    (span,) = re.findall(r"consume demo-files --from (\S+)", tour)
    (size,) = re.findall(r"the window has (\d+) messages?:", unwrapped(tour))
    address = commands["offsets"][-1]
    window = Program(address).ok("consume", "demo-files", "--from", span, "--json").objects
    assert len(window) == int(size) > 0


def test_the_window_is_exact_and_a_range_of_offsets_is_not(demo: Demo) -> None:
    server, tour = demo
    text = unwrapped(tour)
    ((begin, end, size),) = re.findall(
        r"From (\S+Z) until (\S+Z): the window has (\d+) messages?:", text
    )
    from_ms, until_ms = parse_time(begin, 0), parse_time(end, 0)
    read = server.program.ok("consume", "demo-files", "--json").objects
    exact = {one["offset"] for one in read if from_ms <= one["timestamp_ms"] < until_ms}
    assert len(exact) == int(size) > 0
    assert "Looking at the time of each of the 40 messages gives the same." in text
    start, stop = (
        next(one["offset"] for one in read if one["timestamp_ms"] >= at_ms)
        for at_ms in (from_ms, until_ms)
    )
    between = set(range(start, stop))
    ((first, behind, messages, wrong, missing),) = re.findall(
        r"offset (\d+), to the first of the other, offset (\d+): (\d+) messages?\. "
        r"Of other times: (\d+)\. Missing: (\d+)\.",
        text,
    )
    assert (int(first), int(behind), int(messages)) == (start, stop, len(between))
    assert (int(wrong), int(missing)) == (len(between - exact), len(exact - between))
    assert int(wrong) + int(missing) > 0


def test_the_counts_add_up_to_all_messages(demo: Demo) -> None:
    _, tour = demo
    table = tour.partition("4. Count by time")[2].partition("5. A message")[0]
    counts = re.findall(r"^ +\d{4}-\d\d-\d\dT\S+Z +(\d+)(  [▉-▏█]+)?$", table, re.MULTILINE)
    assert 2 <= len(counts) <= 12
    assert sum(int(number) for number, _ in counts) == 40
    assert all(bool(bar) == (number != "0") for number, bar in counts)
    assert "All 40 messages from the first time to the last." in unwrapped(table)


def test_the_load_is_sampled_every_second(demo: Demo) -> None:
    server, _ = demo
    with server.program.running("consume", "demo-load", "--follow", "--json") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
    assert all('"timestamp_type": "LogAppendTime"' in line for line in lines)
    assert all("load_1m" in line for line in lines)


def test_a_second_run_goes_on_with_what_is_there(tmp_path: Path, tree: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(3):
        path = folder / f"file-{number}"
        path.touch()
        os.utime(path, ns=(OLD_MS * 1_000_000, OLD_MS * 1_000_000))
    tours = []
    for _ in range(2):
        with serving(tmp_path / "data", "--history", folder, command="demo") as server:
            tours.append(unwrapped(read_tour(server)))
            read = server.program.ok("consume", "demo-files", "--json").objects
            assert server.stop() == 0
        assert len(read) == 3
    assert "3 were sent just now" in tours[0]
    for tour in tours:
        assert "Topic demo-clicks has seven clicks that came out of order." in tour
        assert (
            "offset 3, to the first of the other, offset 3: 0 messages. Of other times: 0. "
            "Missing: 1." in tour
        ), "no range of offsets of these files is wrong"
    assert "3 are from an earlier run" in tours[1]
    assert "sent just now" not in tours[1]


def test_a_repository_with_enough_commits_is_its_commits(
    tmp_path: Path, require_program: Callable[[str], str]
) -> None:
    git = require_program("git")
    repository = tmp_path / "repository"
    subprocess.run([git, "init", "-q", repository], check=True)
    commits = [(1479144272 + number * 7919 % 1001, f"Subject {number}") for number in range(1001)]
    stream = "".join(
        f"commit refs/heads/main\nauthor A <a@example.org> {seconds} +0000\n"
        f"committer A <a@example.org> {1600000000 + number} +0000\n"
        f"data {len(subject)}\n{subject}\n"
        for number, (seconds, subject) in enumerate(commits)
    )
    subprocess.run(
        [git, "-C", repository, "fast-import", "--quiet"], input=stream.encode(), check=True
    )
    subprocess.run([git, "-C", repository, "symbolic-ref", "HEAD", "refs/heads/main"], check=True)
    with serving(tmp_path / "data", "--history", repository, command="demo") as server:
        assert "Topic demo-commits holds 1,001 messages" in read_tour(server)
        read = server.program.ok("consume", "demo-commits", "--json").objects
        assert server.stop() == 0
    assert [(one["timestamp_ms"] // 1000, one["value"]) for one in read] == commits
    assert all(re.fullmatch("[0-9a-f]{7,}", one["key"]) for one in read)


def test_it_can_be_stopped_in_the_middle_of_its_tour(tmp_path: Path) -> None:
    with serving(tmp_path / "data", command="demo") as server:
        assert server.stop() == 0  # while it looks for the files of the installation
        assert server.log.read_text() == ""


def test_it_goes_on_when_nobody_reads_the_tour(tmp_path: Path, tree: Path) -> None:
    with serving(tmp_path / "data", "--history", tree, command="demo") as server:
        assert server.process.stdout is not None
        server.process.stdout.close()
        with server.program.running("consume", "demo-load", "--follow", "--json") as process:
            assert process.stdout is not None
            assert all(process.stdout.readline() for _ in range(2))
        assert server.stop() == 0


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    places: tuple[str | Path, ...] = ("--listen", "127.0.0.1:0", "--http-listen", "off")
    places += ("--kafka-listen", "off", "--data-dir", tmp_path / "data")
    result = Program(own_process=True)("demo", "--history", tmp_path / "empty", *places)
    assert result.code == 1
    assert result.out.startswith("ready ")
    assert "there are no files" in result.err
    assert result.err.count("\n") == 1


def test_a_wrong_setting_is_wrong_usage(run: Callable[..., CommandResult]) -> None:
    result = run("demo", "--set", "retention.ms=soon", code=2)
    assert result.out == ""
    assert "retention.ms" in result.err
