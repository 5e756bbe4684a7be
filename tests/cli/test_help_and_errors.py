"""Help, short names, suggestions, completion, and errors as objects."""

import json
import re
from collections.abc import Callable
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from horolog.cli.app import whole_program
from horolog.cli.failures import report
from horolog.cli.hints import all_hints
from horolog.client.errors import IN_PYTHON, Remedy, SecurityError, TlsFailed
from horolog.protocol.errors import NotCoordinator, NotLeader, OffsetOutOfRange
from horolog.testing.program import CommandResult, Program

from .test_terminal import completed

Run = Callable[..., CommandResult]


def groups() -> list[str]:
    commands = whole_program().commands
    return ["", *(name for name in commands if hasattr(commands[name], "list_commands"))]


@pytest.mark.parametrize("name", ["", *whole_program().commands])
def test_each_command_has_a_short_option_for_help(run: Run, name: str) -> None:
    words = [name] if name else []
    assert run(*words, "-h").out == run(*words, "--help").out != ""


@pytest.mark.parametrize("name", groups())
@pytest.mark.parametrize("typo", ["delte", "remov", "rmm", "trm", "tri", "repai", "promot"])
def test_a_mistyped_command_never_suggests_to_delete(run: Run, name: str, typo: str) -> None:
    said = run(*([name] if name else []), typo, code=2).err
    for word in ("delete", "remove", "'rm'", "trim", "repair", "promote"):
        assert word not in said.replace(f"command {typo!r}", "")


def test_a_mistyped_command_suggests_a_harmless_one(run: Run) -> None:
    assert "Did you mean 'describe'?" in run("topic", "descrbe", code=2).err
    assert "Did you mean 'consume'?" in run("consme", code=2).err
    assert "`horolog topic --help` shows which there are" in run("topic", "xyz", code=2).err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["ls"], "`horolog topic list`"),
        (["topics", "delete", "t"], "`horolog topic list`"),
        (["groups"], "`horolog group list`"),
        (["seek", "g"], "`horolog consume TOPIC --from TIME`"),
        (["XADD", "t", "v"], "`horolog produce TOPIC VALUE`"),
        (["topic", "info", "t"], "`horolog topic describe TOPIC`"),
        (["-L", "-b", "127.0.0.1:9092"], "`horolog topic list`"),
        (["lag", "--group", "g"], "`horolog lag NAME`"),
        (["consume", "t", "--since", "1h"], "--from @-1h"),
        (["consume", "t", "--since=1h"], "--from @-1h"),
        (["consume", "t", "--tail", "5"], "--last N"),
        (["consume", "t", "--last", "1h"], "--from @-1h"),
        (["consume", "t", "-o", "beginning"], "--from earliest"),
        (["consume", "t", "--from-beginning"], "--from earliest"),
        (["produce", "t", "--bootstrap-server", "x"], "--server HOST:PORT"),
        (["topic", "list", "-b", "x"], "--server HOST:PORT"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_words_of_other_tools_get_a_hint(run: Run, arguments: list[str], hint: str) -> None:
    said = run(*arguments, code=2)
    assert said.out == ""
    assert hint in said.err.splitlines()[-1]
    found = error_of(run(*arguments, "--json", code=2))
    assert found["error"] == "WRONG_USAGE"
    assert hint in found["cure"]


def options_in(text: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z-]*", text))


def test_hints_name_only_what_there_is_and_nothing_that_destroys(run: Run) -> None:
    helps = cache(lambda *words: run(*words, "--help").out)
    for path, hint in all_hints():
        words = set(re.findall(r"[a-z]+", hint))
        assert not {"delete", "remove", "rm", "trim", "repair", "promote", "seek"} & words
        for command in re.findall(r"`horolog ([^`]+)`", hint):
            names = takewhile(str.islower, re.findall(r"[\w-]+", command.partition(" --")[0]))
            shown = helps(*(name for name in names if not name.startswith("-")))
            assert options_in(command) <= options_in(shown), hint
        rest = re.sub("`[^`]+`", "", hint)
        if path:
            assert options_in(rest) <= options_in(helps(*path.split())), hint


def test_an_alias_is_no_command_of_its_own(run: Run) -> None:
    assert "ls" not in run("topic", "--help").out.split()
    assert run("topic", "rm", "--help").out == run("topic", "delete", "--help").out
    assert run("user", "rm", "--help").out == run("user", "remove", "--help").out


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("horolog topic create x --set retention.m", ["retention.ms="]),
        ("horolog topic create x --set message.timestamp.type=L", ["=LogAppendTime"]),
        ("horolog topic alter x --unset segment.j", ["segment.jitter.ms"]),
        ("horolog serve --set auto.create.topics.enable=t", ["=true"]),
        ("horolog offsets x --tz Europe/Berl", ["Europe/Berlin"]),
        ("horolog topic l", ["list"]),
        ("horolog consume x --mechanism SCRAM-SHA-5", ["SCRAM-SHA-512"]),
        ("horolog acl test User:a --operation Des", ["Describe", "DescribeConfigs"]),
    ],
)
def test_settings_and_values_are_completed(words: str, offered: list[str]) -> None:
    found = completed(words, "127.0.0.1:1")
    assert [one[-len(end) :] for one, end in zip(found, offered, strict=True)] == offered


def error_of(result: CommandResult) -> dict[str, Any]:
    """The only line of standard error, as an object."""
    (line,) = result.err.splitlines()
    found = json.loads(line)
    assert list(found) == ["error", "message", "cure"]
    assert all(found.values())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("arguments", "code", "name", "cure"),
    [
        (["topic", "describe", "nowhere"], 1, "UNKNOWN_TOPIC_OR_PARTITION", "horolog topic list"),
        (["topic", "create", "a/b"], 1, "INVALID_TOPIC_EXCEPTION", ""),
        (["topic", "create", "t", "--set", "x=1"], 2, "INVALID_CONFIG", "--help"),
        (["topic", "create", "t", "--set", "retention.ms=x"], 2, "INVALID_CONFIG", "it must be a"),
        (["topic", "create", "t", "--partitions", "x"], 2, "WRONG_USAGE", "topic create --help"),
        (["topic", "crate"], 2, "WRONG_USAGE", "Did you mean"),
        (["topic", "list", "--bogus"], 2, "WRONG_USAGE", "topic list --help"),
        (["offsets", "t", "--at", "14:05"], 2, "WRONG_USAGE", "--tz Europe/Berlin"),
        (["lag", "nobody"], 1, "FAILED", "`horolog lag` without a name"),
        (["topic", "list", "--server", "127.0.0.1:1"], 1, "CONNECTION_FAILED", "horolog serve"),
        (["topic", "list", "--server", "x"], 2, "WRONG_USAGE", ""),
        (["topic", "list", "--ca", "nowhere.pem"], 2, "WRONG_USAGE", ""),
        (["verify", "nowhere"], 1, "ENOENT", "path"),
        (["verify", "."], 2, "WRONG_USAGE", ""),
        (["acl", "list"], 1, "SECURITY_DISABLED", ""),
        (["group", "describe", "nope"], 1, "GROUP_ID_NOT_FOUND", "`horolog group list`"),
        (["group", "delete", "nope"], 1, "GROUP_ID_NOT_FOUND", "`horolog group list`"),
        (["explain", "gone", "nope"], 1, "FAILED", "`horolog topic list`"),
    ],
)
def test_an_error_is_an_object_with_a_cure(
    ask: Run,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    code: int,
    name: str,
    cure: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = ask(*arguments, "--json", code=code)
    assert said.out == ""
    found = error_of(said)
    assert found["error"] == name
    assert cure in found["cure"]


def test_times_without_a_zone_name_both_places_of_a_zone(ask: Run, topic: str) -> None:
    said = ask("offsets", topic, "--at", "14:05", code=2).err
    assert "--tz Europe/Berlin" in said
    assert "HOROLOG_TZ" in said


def test_the_zone_is_taken_from_option_or_environment(
    ask: Run, horolog: Program, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    horolog.ok("topic", "create", topic, "--set", "retention.ms=-1")
    horolog.ok("produce", topic, "--json", stdin='{"value": "v", "timestamp_ms": 1479132000000}\n')
    at = ("offsets", topic, "--at", "2016-11-14 15:00", "--at", "2016-11-14 15:01", "--json")

    def found() -> list[int | None]:
        return [one["offset"] for one in ask(*at).objects]

    assert [one["offset"] for one in ask(*at, "--tz", "Europe/Berlin").objects] == [0, None]
    monkeypatch.setenv("HOROLOG_TZ", "Europe/Berlin")
    assert found() == [0, None]
    monkeypatch.setenv("HOROLOG_TZ", "UTC")
    assert found() == [None, None]
    monkeypatch.setenv("HOROLOG_TZ", "Europe/Berln")
    wrong = ask(*at, code=2)
    assert "HOROLOG_TZ: 'Europe/Berln' is not a time zone; did you mean Europe/Berlin?" in wrong.err


def test_ends_of_a_log_are_positions(ask: Run, horolog: Program, topic: str) -> None:
    horolog.ok("produce", topic, stdin="a\nb\n")

    def values(*options: str) -> list[str]:
        return [one["value"] for one in ask("consume", topic, "--json", *options).objects]

    assert values("--from", "earliest", "--until", "latest") == ["a", "b"]
    assert values("--from", "latest") == values("--until", "earliest") == []
    assert values("--from", "offset:1", "--until", "latest") == ["b"]
    assert values("--from", "earliest", "--until", "now") == ["a", "b"]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (TlsFailed("x is not trusted", Remedy.CA), "--ca FILE or HOROLOG_CA"),
        (TlsFailed("x refused this one", Remedy.CERTIFICATE), "--client-cert FILE"),
        (OffsetOutOfRange("q-0 has no offset 77"), "`horolog offsets TOPIC --at earliest"),
        (NotLeader("broker 2 follows the leader at [::1]:7070"), "--server [::1]:7070, or all"),
        (NotCoordinator("broker 2 follows the leader at h:1"), "with --server h:1, or all"),
        (NotLeader("broker 2 does not lead: nobody does"), "Try again; `horolog doctor`"),
        (SecurityError("certificate: a.pem cannot be read"), "--client-cert: a.pem"),
        (SecurityError("PLAIN would", Remedy.TLS_ADDRESS), "--server tls://HOST:PORT"),
    ],
)
def test_a_cure_is_in_the_words_of_the_command_line(
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    says: str,
) -> None:
    report(error, ["topic", "list"])
    said = capsys.readouterr().err
    assert says in said
    assert not any(words in said for words in IN_PYTHON.values())
    report(error, ["topic", "list", "--json"])
    found = json.loads(capsys.readouterr().err)
    assert says in found["message"] + found["cure"]


def test_a_cure_never_sends_back_to_a_message_that_has_none(
    ask: Run, horolog: Program, topic: str
) -> None:
    horolog.ok("topic", "create", topic, "--partitions", "2")
    alter = ("topic", "alter", topic, "--partitions", "1")
    assert "more than `horolog topic describe` shows" in ask(*alter, code=1).err
    assert "`horolog topic list` shows" in ask("explain", "gone", "nope", code=1).err
    seek = ("group", "seek", "g", "--topic", topic, "--to", "offset:77", "--json", "--dry-run")
    for arguments in ((*alter, "--json"), seek, ("group", "describe", "nope", "--json")):
        found = error_of(ask(*arguments, code=1))
        assert found["cure"].startswith(("Give ", "`horolog "))
        assert "the message says" not in found["cure"]


def test_each_remedy_has_words_in_python() -> None:
    for remedy in Remedy:
        assert str(TlsFailed("x", remedy)) == f"x. {IN_PYTHON[remedy]}"


def test_verify_names_the_data_directory_inside(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "topics.json").write_text("{}")
    for command in ("verify", "repair"):
        said = run(command, tmp_path, code=2).err
        assert f"{tmp_path} is neither a data directory nor" in said
        assert f"give {tmp_path / 'data'}" in said
    (tmp_path / "data" / "topics.json").rename(tmp_path / "data" / "other")
    assert "data.dir names" in run("verify", tmp_path, code=2).err
