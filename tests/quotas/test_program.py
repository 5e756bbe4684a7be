"""`horolog quota`, before the first start and live."""

import json
from pathlib import Path
from typing import Any

import pytest

from horolog.testing.program import Program, serving


def listed(program: Program, *place: str | Path) -> list[dict[str, Any]]:
    lines = program.ok("quota", "list", "--json", *place).out.splitlines()
    return [json.loads(line) for line in lines]


def test_before_the_first_start_and_live(tmp_path: Path) -> None:
    data = tmp_path / "data"
    program = Program()
    offline = ("--data-dir", data)
    (tmp_path / "empty").mkdir()
    assert program.ok("quota", "list", "--data-dir", tmp_path / "empty").out == "no quotas\n"
    said = program.ok("quota", "set", "--for-user", "a", "producer_byte_rate=1048576", *offline).out
    assert said == "set for user a: producer_byte_rate 1MiB/s\n"
    with serving(data) as server:
        locked = program("quota", "list", *offline)
        assert (locked.code, "--server" in locked.err) == (1, True)
        live = server.program
        both = ("consumer-byte-rate=5e6", "request_percentage=2.5")
        live.ok("quota", "set", "--for-user-defaults", "--for-client-id", "c", *both)
        live.ok("quota", "set", "--for-client-defaults", "controller_mutation_rate=0.5")
        shown = live.ok("quota", "list").out
        for text in ("<default>", "consumer_byte_rate 5MB/s", "0.5 partitions/s", "2.5 %"):
            assert text in shown
        live.ok(
            "quota", "remove", "--for-user-defaults", "--for-client-id", "c", "request_percentage"
        )
        gone = live(
            "quota", "remove", "--for-user-defaults", "--for-client-id", "c", "request_percentage"
        )
        assert (gone.code, "no such quota" in gone.err) == (1, True)
        live.ok("quota", "remove", "--for-client-defaults")
        server.stop()
    assert listed(program, *offline) == [
        {
            "entity": {"user": None, "client-id": "c"},
            "quotas": {"consumer_byte_rate": 5000000.0},
        },
        {"entity": {"user": "a"}, "quotas": {"producer_byte_rate": 1048576.0}},
    ]


SET = ("set", "--for-user", "a")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("set", "producer_byte_rate=1"), "say whose"),
        ((*SET, "--for-user-defaults", "producer_byte_rate=1"), "not both"),
        (("set", "--for-client-id", "", "producer_byte_rate=1"), "1 to 255"),
        (("set", "--for-user", "x" * 256, "producer_byte_rate=1"), "256 bytes"),
        ((*SET, "producer_byte_rate"), "as producer_byte_rate=VALUE"),
        ((*SET, "producer_byte_rate=1", "producer_byte_rate=2"), "once"),
        ((*SET, "juggling_rate=1"), "no quota 'juggling_rate'"),
        ((*SET, "producer_byte_rate=fast"), "no number"),
        ((*SET, "producer_byte_rate=nan"), "above 0"),
        ((*SET, "producer_byte_rate=inf"), "below 2^63"),
        ((*SET, "producer_byte_rate=-1"), "above 0"),
        ((*SET, "producer_byte_rate=9223372036854775808"), "below 2^63"),
        (("remove",), "say whose"),
        (("remove", "--for-user", "a", "juggling_rate"), "no quota"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    done = Program()("quota", *arguments, "--data-dir", tmp_path / "data")
    assert (done.code, says in done.err) == (2, True), done.err
    assert not (tmp_path / "data").exists()
