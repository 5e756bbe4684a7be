"""`horolog acl`, before the first start and live."""

import json
from pathlib import Path
from typing import Any

import pytest

from horolog.testing.broker import BrokerThread
from horolog.testing.program import Program, serving

READ = ("--operation", "read")


def rules(program: Program, *place: str | Path) -> list[dict[str, Any]]:
    listed = program.ok("acl", "list", "--json", *place).out
    return [json.loads(line) for line in listed.splitlines()]


def test_before_the_first_start_and_live(tmp_path: Path) -> None:
    data = tmp_path / "data"
    program = Program()
    offline = ("--data-dir", data)
    (tmp_path / "empty").mkdir()
    assert program.ok("acl", "list", "--data-dir", tmp_path / "empty").out == "no rules\n"
    everything = ("--allow", "User:ANONYMOUS", "--operation", "all")
    program.ok("acl", "add", *everything, "--cluster", *offline)
    program.ok("acl", "add", *everything, "--topic", "t-", "--prefixed", *offline)
    with serving(data, "--set", "authorization=on", "--set", "super.users=User:root") as server:
        locked = program("acl", "list", *offline)
        assert (locked.code, "--server" in locked.err) == (1, True)
        live = server.program
        live.ok("topic", "create", "t-1")
        assert live("consume", "other", "-n", "1").code != 0
        live.ok("acl", "add", "--allow", "User:a", "--deny", "User:b", *READ, "--topic", "t-1")
        assert [(each["principal"], each["permission"]) for each in rules(live)] == [
            ("User:ANONYMOUS", "allow"),
            ("User:ANONYMOUS", "allow"),
            ("User:a", "allow"),
            ("User:b", "deny"),
        ]
        asked = ("--operation", "describe", "--topic", "t-1", "--json")

        def verdict(who: str) -> tuple[bool, str, str]:
            said = live("acl", "test", who, *asked)
            told = json.loads(said.out)
            assert (said.code, said.err) == (0 if told["allowed"] else 1, "")
            return told["allowed"], told["reason"], told["authorization"]

        assert verdict("User:a") == (True, "allowed by a rule", "on")
        assert verdict("User:b") == (False, "no rule", "on")
        assert verdict("User:root") == (True, "super user", "on")
        shown = live("acl", "test", "User:b", *READ, "--topic", "t-1")
        assert (shown.code, shown.err) == (1, "")
        assert shown.out == "refused: User:b at * may not Read topic 't-1'\n"
        for host in ("localhost", "*", "bad"):
            wrong = live("acl", "test", "User:b", *READ, "--topic", "t-1", "--host", host)
            assert (wrong.code, wrong.out) == (2, "")
            assert f"--host {host}: " in wrong.err
        total = ("--deny", "User:*", *READ, "--topic", "*", "--prefixed")
        assert "no topic begins with *" in live("acl", "add", *total).err
        live.ok("acl", "remove", "--deny", "User:b")
        assert live("acl", "remove", "--deny", "User:b").code == 1
        server.stop()
    left = rules(program, *offline)
    assert [each["principal"] for each in left] == ["User:ANONYMOUS", "User:ANONYMOUS", "User:a"]
    assert left[2] == {
        "principal": "User:a",
        "host": "*",
        "permission": "allow",
        "operation": "Read",
        "resource": "topic",
        "name": "t-1",
        "pattern": "literal",
    }


def test_who_may_read_reads_by_every_command(tmp_path: Path) -> None:
    """Read and Write imply Describe, and no right to a topic's settings."""
    data = tmp_path / "data"
    for operation in ("create", "write", "read"):
        what = ("--allow", "User:ANONYMOUS", "--operation", operation, "--topic", "t")
        Program().ok("acl", "add", *what, "--data-dir", data)
    with BrokerThread(data, {"authorization": "on", "super.users": "User:root"}) as broker:
        program = Program(broker.address)
        program.ok("topic", "create", "t")
        program.ok("produce", "t", stdin="a\nb\n")
        assert program("topic", "describe", "t").code == 1
        window = ("--from", "2020-01-01T00:00:00Z")
        for bounds in (("--from", "offset:0"), window, (*window, "--offsets-between")):
            read = program.ok("consume", "t", *bounds, "--json").objects
            assert [one["value"] for one in read] == ["a", "b"]
        (found,) = program.ok("offsets", "t", "--at", "latest", "--json").objects
        assert found["offset"] == 2
        counted = program.ok("histogram", "t", *window, "--every", "36500d", "--json").objects
        assert sum(one["count"] for one in counted) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("add",), "say who"),
        (("add", "--allow", "User:a", "--topic", "t"), "say who"),
        (("add", "--allow", "a", *READ, "--topic", "t"), "User:NAME"),
        (("add", "--allow", "User:a", "--operation", "juggle", "--topic", "t"), "juggle"),
        (("add", "--allow", "User:a", *READ, "--topic", "t", "--cluster"), "one of"),
        (("add", "--allow", "User:a", *READ, "--topic", ""), "1 to 1024"),
        (("add", "t", "--allow", "User:a", *READ, "--cluster"), "too much"),
        (("add", "--allow", "User:a", *READ, "--topic", "t", "--host", "localhost"), "address"),
        (("add", "--allow", "User:a", *READ, "--topic", "t", "--host", "999.1.1.1"), "address"),
        (("remove",), "say whose"),
        (("test", "User:a", *READ), "say on what"),
        (("test", "a", *READ, "--topic", "t"), "User:NAME"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    refused = Program()("acl", *arguments, "--data-dir", tmp_path / "data")
    assert refused.code == 2
    assert says in refused.err
    assert not (tmp_path / "data" / "metadata-log").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("user", "list"),
        ("user", "remove", "a"),
        ("acl", "list"),
        ("acl", "remove", "--allow", "User:a"),
        ("acl", "test", "User:a", *READ, "--topic", "t"),
        ("quota", "list"),
    ],
    ids=" ".join,
)
def test_what_reads_a_directory_does_not_make_it(tmp_path: Path, command: tuple[str, ...]) -> None:
    missing = tmp_path / "typo"
    refused = Program()(*command, "--data-dir", missing)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == f"horolog: --data-dir: {missing} is not a directory\n"
    assert not missing.exists()
