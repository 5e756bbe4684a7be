"""`horolog group`: for people, for programs, and on a terminal."""

from collections.abc import Callable, Mapping

import pytest

from horolog import blocking
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult

from .terminal import on_terminal

Run = Callable[..., CommandResult]


@pytest.fixture
def ask(
    run: Run, horolog_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., CommandResult]:
    """As `run`, asking a broker of the test's own, which has five messages in clicks-1."""
    monkeypatch.setenv("HOROLOG_SERVER", horolog_broker.address)
    horolog_broker.clock.freeze()
    now_ms = horolog_broker.clock.now_ms()
    with blocking.Producer(horolog_broker.address) as producer:
        for minutes in (120, 90, 50, 40, 10):
            producer.send("clicks", b"x", partition=1, timestamp_ms=now_ms - 60_000 * minutes)
    return run


@pytest.fixture
def horolog_settings() -> Mapping[str, object]:
    return {"num.partitions": 2}


def commit(broker: BrokerThread, name: str, offset: int) -> None:
    with blocking.Admin(broker.address) as admin:
        admin.commit_position(name, "clicks", 1, offset)


def words(line: str) -> str:
    return " ".join(line.split())


def test_groups_are_listed(ask: Run, horolog_broker: BrokerThread) -> None:
    assert ask("group", "list").out == "no groups\n"
    assert ask("group", "list", "--json").out == ""
    commit(horolog_broker, "job", 2)
    now_ms = horolog_broker.clock.now_ms()
    (found,) = ask("group", "list", "--json").objects
    assert found == {
        "group": "job",
        "kind": "position",
        "state": None,
        "members": 0,
        "positions": 1,
        "moved_at_ms": now_ms,
        "used_at_ms": now_ms,
    }
    head, line = ask("group", "list").out.splitlines()
    assert words(head) == "group state members positions moved used"
    assert words(line).startswith("job named position 0 1 20")
    assert ask("group", "list", "--idle-for", "7d").out == "no group is idle for 7d\n"
    horolog_broker.clock.step(8 * 86_400)
    assert [
        each["group"] for each in ask("group", "list", "--idle-for", "7d", "--json").objects
    ] == ["job"]


def test_a_group_is_described(ask: Run, horolog_broker: BrokerThread) -> None:
    commit(horolog_broker, "job", 2)
    now_ms = horolog_broker.clock.now_ms()
    horolog_broker.clock.step(60)
    (found,) = ask("group", "describe", "job", "--json").objects
    assert found == {
        "topic": "clicks",
        "partition": 1,
        "position": 2,
        "end": 5,
        "lag": 3,
        "lag_seconds": 60.0,
        "member": None,
        "host": None,
        "moved_at_ms": now_ms,
    }
    title, _, head, line = ask("group", "describe", "job").out.splitlines()
    assert title == "job: named position"
    assert words(head) == "topic partition position end lag behind moved member host"
    assert words(line).startswith("clicks 1 2 5 3 1 min 20")
    assert "no group 'nobody'" in ask("group", "describe", "nobody", code=1).err


def test_positions_are_moved(ask: Run, horolog_broker: BrokerThread) -> None:
    to = ("group", "seek", "job", "--to")
    new = ask(*to, "@-1h", "--topic", "clicks", "--yes", "--json").objects
    assert new == [
        {"topic": "clicks", "partition": 0, "old": None, "new": 0},
        {"topic": "clicks", "partition": 1, "old": None, "new": 2},
    ]
    shown = ask(*to, "latest", "--topic", "clicks:1", "--dry-run").out.splitlines()
    assert list(map(words, shown)) == ["topic partition position new position", "clicks 1 2 5"]
    one = ("--topic", "clicks:1", "--yes", "--json")
    for position, offset in (
        ("earliest", 0),
        ("latest", 5),
        ("-2", 3),
        ("+1", 4),
        ("-9", 0),
        ("+9", 5),
        ("offset:1", 1),
        ("now", 5),
    ):
        assert [each["new"] for each in ask(*to, position, *one).objects] == [offset]
    assert ask(*to, "earliest", "--yes").out.endswith("moved 1 position of job\n")
    moved_at_ms = horolog_broker.clock.now_ms()
    horolog_broker.clock.step(60)
    unmoved = ask(*to, "-3").out.splitlines()
    assert list(map(words, unmoved[1:])) == [
        "clicks 0 0 0",
        "clicks 1 0 0",
        "nothing to move: job is there already",
    ]
    (used,) = ask("group", "list", "--json").objects
    assert used["used_at_ms"] == moved_at_ms, "nothing was committed"


def test_a_script_is_not_asked(ask: Run, horolog_broker: BrokerThread) -> None:
    """As `topic trim`, `topic delete` and `group delete` go ahead without a terminal."""
    commit(horolog_broker, "job", 2)
    lines = ask("group", "seek", "job", "--to", "latest").out.splitlines()
    assert list(map(words, lines[1:])) == ["clicks 1 2 5", "moved 1 position of job"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["job", "--to", "offset:99"], 1, "clicks-1 has no offset 99"),
        (["job", "--to", "latest", "--topic", "nope"], 1, "nope"),
        (["", "--to", "latest", "--topic", "clicks"], 1, "the group name '' has 0 bytes"),
        (["j" * 256, "--to", "latest", "--topic", "clicks"], 1, "256 bytes; give one of 1 to 255"),
        (["new", "--to", "latest", "--yes"], 1, "group 'new' has no positions that could move"),
        (
            ["job", "--to", "offset:6", "--yes"],
            1,
            "clicks-1 has no offset 6, only those from 0 to 5",
        ),
        (["job", "--to", "latest", "--yes", "--topic", "clicks:2"], 1, "no partition 2"),
        (["job", "--to", "latest", "--yes", "--topic", "nowhere"], 1, "nowhere"),
        (["job", "--to", "offset:x", "--yes"], 2, "write offset:N"),
        (["job", "--to", "1h", "--yes"], 2, "write @-1h"),
        (["job", "--to", "1479144272", "--yes"], 2, "looks like seconds"),
        (["job", "--to", "end", "--yes"], 2, "or earliest, latest, offset:N, +N or -N"),
        (["job", "--to", "latest", "--yes", "--topic", "clicks:x"], 2, "write TOPIC, or TOPIC:"),
        (["job", "--to", "latest", "--yes", "--topic", ":1"], 2, "write TOPIC, or TOPIC:"),
        (["job"], 2, "--to"),
    ],
)
def test_what_is_refused(
    ask: Run, horolog_broker: BrokerThread, arguments: list[str], code: int, said: str
) -> None:
    commit(horolog_broker, "job", 2)
    refused = ask("group", "seek", *arguments, code=code)
    assert said in words(refused.err)
    assert refused.out == ""
    assert ask("group", "describe", "job", "--json").objects[0]["position"] == 2


def test_groups_and_their_positions_are_deleted(ask: Run, horolog_broker: BrokerThread) -> None:
    ask("group", "seek", "job", "--to", "latest", "--topic", "clicks", "--yes")
    assert ask("group", "delete", "job", "--topic", "clicks:1", "--json").objects == [
        {"group": "job", "topic": "clicks", "partition": 1, "position": 5}
    ]
    assert (
        "no position in clicks-1"
        in ask("group", "delete", "job", "--topic", "clicks:1", code=1).err
    )
    assert ask("group", "delete", "job", "--topic", "clicks").out == (
        "deleted the positions of job in clicks: 1 position\n"
    )
    assert "no group 'job'" in ask("group", "delete", "job", code=1).err
    commit(horolog_broker, "job", 2)
    assert ask("group", "delete", "job", "--json").objects == [{"group": "job", "positions": 1}]


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 1), ("\n", 1)])
def test_a_terminal_is_asked(ask: Run, horolog_broker: BrokerThread, typed: str, code: int) -> None:
    commit(horolog_broker, "job", 2)
    done = on_terminal("group", "seek", "job", "--to", "latest", typed=typed)
    assert done.code == code
    assert "clicks" in done.out
    assert "move 1 position of job? [y/N]" in done.err
    (found,) = ask("group", "describe", "job", "--json").objects
    assert found["position"] == (2 if code else 5)
    done = on_terminal("group", "delete", "job", typed=typed)
    assert done.code == code
    assert "delete job (1 position)? [y/N]" in done.err
    assert bool(ask("group", "list", "--json").objects) == bool(code)
