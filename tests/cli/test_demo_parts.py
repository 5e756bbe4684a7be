"""What the demo picks to show, and how it writes."""

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.cli.demo.feed import find_history, not_yet_stored
from horolog.cli.demo.tour import (
    Commands,
    disorder,
    intervals_to_count,
    moment_to_ask_for,
    program_started_as,
    reachable,
    window_to_replay,
)
from horolog.client.results import ConsumerRecord
from horolog.protocol.records.layout import TimestampType
from horolog.protocol.records.messages.sets import NewRecord

TIMES = st.lists(st.one_of(st.none(), st.integers(0, 30_000)), min_size=1)


def stored(times: list[int | None], start: int = 0) -> list[ConsumerRecord]:
    return [
        ConsumerRecord("t", 0, offset, time, TimestampType.CREATE_TIME, None, str(time).encode())
        for offset, time in enumerate(times, start)
    ]


def first_at(times: list[int | None], target: int) -> int | None:
    return next((i for i, time in enumerate(times) if time is not None and time >= target), None)


@given(TIMES)
def test_disorder_counts_messages_older_than_one_before_them(times: list[int | None]) -> None:
    steps = [
        max(known) - time
        for i, time in enumerate(times)
        if time is not None and (known := [t for t in times[:i] if t is not None])
    ]
    late = [step for step in steps if step > 0]
    found = disorder(stored(times))
    assert (found.late, found.furthest_ms) == (len(late), max(late, default=0))


@given(TIMES.filter(lambda times: any(time is not None for time in times)))
def test_the_moment_asked_for_has_an_answer(times: list[int | None]) -> None:
    moment_ms = moment_to_ask_for(stored(times))
    offset = first_at(times, moment_ms)
    assert offset is not None
    assert (times[offset] or 0) - moment_ms < 1000


@given(st.lists(st.integers(0, 2**60), min_size=1), st.integers(2, 20))
def test_the_intervals_have_all_times(times: list[int], most: int) -> None:
    start_ms, end_ms, length_ms = intervals_to_count(stored([*times, None]), most)
    assert start_ms <= min(times)
    assert max(times) < end_ms
    intervals, rest = divmod(end_ms - start_ms, length_ms)
    assert (1 <= intervals <= most, rest, start_ms % length_ms) == (True, 0, 0)


@given(TIMES, st.integers(1, 10))
def test_the_window_has_the_messages_between_its_times(
    times: list[int | None], messages: int
) -> None:
    window = window_to_replay(stored(times), messages)
    if window is None:
        newer = [time for time in times if time is not None]
        assert newer == [] or first_at(times, max(newer)) == first_at(times, newer[0])
    else:
        assert window.start < window.end
        assert first_at(times, window.start_ms) == window.start
        assert first_at(times, window.end_ms) == window.end


def differs(times: list[int | None], start: int, end: int, start_ms: int, end_ms: int) -> bool:
    exact = {i for i, time in enumerate(times) if time is not None and start_ms <= time < end_ms}
    return exact != set(range(start, end))


@given(TIMES, st.integers(1, 10))
def test_the_window_is_one_that_a_range_of_offsets_gets_wrong(
    times: list[int | None], messages: int
) -> None:
    window = window_to_replay(stored(times), messages)
    newer = [
        (i, time) for i, time in enumerate(times) if time is not None and first_at(times, time) == i
    ]
    windows = [(a, b, c, d) for (a, c), (b, d) in combinations(newer, 2)]
    if any(differs(times, *one) for one in windows):
        assert window is not None
        assert differs(times, window.start, window.end, window.start_ms, window.end_ms)


def records(times: list[int]) -> list[NewRecord]:
    return [NewRecord(str(time).encode(), None, time) for time in times]


@pytest.mark.parametrize(
    ("there", "sent"),
    [
        pytest.param(stored([]), [1, 2, 3], id="nothing-there"),
        pytest.param(stored([1, 2]), [3], id="stopped-half-way"),
        pytest.param(stored([1, 2, 3]), [], id="all-there"),
        pytest.param(stored([1, 2, 3, 4]), [], id="more-there"),
        pytest.param(stored([1, 7]), [], id="another-history"),
        pytest.param(stored([1, 2], start=5), [], id="beginning-deleted"),
    ],
)
def test_only_what_follows_the_last_message_stored_is_sent(
    there: list[ConsumerRecord], sent: list[int]
) -> None:
    assert list(not_yet_stored(records([1, 2, 3]), there)) == records(sent)


def test_the_installation_has_thousands_of_files_with_times() -> None:
    found = find_history(None)
    assert len(found.records) > 1000
    assert all(record.timestamp_ms >= 0 and record.value for record in found.records)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        find_history(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("address", "to_connect_to"),
    [
        ("0.0.0.0:7070", "127.0.0.1:7070"),
        ("[::]:7070", "[::1]:7070"),
        ("127.0.0.1:1", "127.0.0.1:1"),
    ],
)
def test_an_address_of_every_interface_is_reached_here(address: str, to_connect_to: str) -> None:
    assert reachable(address) == to_connect_to


def test_commands_start_the_program_as_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "horolog"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    assert program_started_as("bin/horolog") == ["bin/horolog"]
    assert program_started_as(str(program)) == ["bin/horolog"]
    assert program_started_as("/x/__main__.py")[-2:] == ["-m", "horolog"]
    monkeypatch.setenv("PATH", str(program.parent))
    assert program_started_as(str(program)) == ["horolog"]
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(program.parent)
    assert program_started_as(str(program)) == ["./horolog"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert program_started_as(str(program)) == [str(program)]


def test_commands_are_quoted_for_a_shell() -> None:
    commands = Commands(["horolog"], "127.0.0.1:1")
    assert commands.client("topic", "list") == "horolog topic list --server 127.0.0.1:1"
    assert commands.local("dump", "a b") == "horolog dump 'a b'"
