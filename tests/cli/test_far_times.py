"""Message times and settings at the end of what 64 bits hold, on every surface of the program."""

import json
from collections.abc import Callable, Iterator

import pytest

from horolog import blocking
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Program

Ask = Callable[..., CommandResult]

LAST_MS = 2**63 - 1
BEHIND_2_53 = 2**53 + 1
TIMES_MS = (1_479_144_272_509, LAST_MS, LAST_MS - 1, BEHIND_2_53, 253_402_300_800_000, 0)
"""An ordinary one, the two last ones, one that no double holds, the year 10000, the first one."""


RETENTIONS = {"2^63-1": LAST_MS, "2^63-2": LAST_MS - 1, "7d": 604_800_000, "off": -1}


@pytest.fixture(params=RETENTIONS.values(), ids=list(RETENTIONS))
def topic(request: pytest.FixtureRequest, ask: Ask, horolog: Program) -> Iterator[str]:
    """A topic with such a retention and all of the times in it."""
    name = f"far{request.param}"
    far = ("segment.ms", "segment.jitter.ms", "file.delete.delay.ms", "flush.ms")
    settings = [f"retention.ms={request.param}", *(f"{one}={LAST_MS}" for one in far)]
    ask("topic", "create", name, *(part for one in settings for part in ("--set", one)))
    sent = [
        json.dumps({"value": str(number), "timestamp_ms": at_ms}) + "\n"
        for number, at_ms in enumerate(TIMES_MS)
    ]
    horolog.ok("produce", name, "--json", "--any-unit", stdin="".join(sent))
    yield name
    ask("topic", "delete", name)


def test_every_command_takes_them(ask: Ask, topic: str, server: BrokerThread) -> None:
    assert "partition" in ask("topic", "describe", topic).out
    [described] = ask("topic", "describe", topic, "--json").objects
    assert described["topic"] == topic

    off = topic.endswith("-1")
    explained = ask("explain", "retention", topic, "--json").objects
    assert [one["goes_ms"] for one in explained] == [None if off else LAST_MS] * len(explained)
    assert all(one["worst_case_ms"] in ((None,) if off else (LAST_MS,)) for one in explained)
    assert explained[0]["largest_timestamp_ms"] == LAST_MS
    assert f"{LAST_MS} ms" in str(explained[0]["reason"])
    assert str(LAST_MS) in ask("explain", "retention", topic).out

    for at_ms, offset in ((LAST_MS, 1), (BEHIND_2_53, 1), (TIMES_MS[0], 0)):
        asked = (topic, "--at", str(at_ms), "--any-unit", "--json")
        [found] = ask("offsets", *asked).objects
        assert (found["offset"], found["timestamp_ms"]) == (offset, TIMES_MS[offset])
        assert f"offset {offset}" in ask("explain", "offset", *asked[:-1]).out.lower()
    [largest] = ask("offsets", topic, "--at", "largest", "--json").objects
    assert (largest["offset"], largest["timestamp_ms"]) == (1, LAST_MS)

    consumed = ask("consume", topic, "--json").objects
    assert [one["timestamp_ms"] for one in consumed] == list(TIMES_MS)
    assert f"{LAST_MS} ms" in ask("consume", topic).out
    late = ask("consume", topic, "--from", str(LAST_MS), "--any-unit", "--json").objects
    assert late[0]["timestamp_ms"] == LAST_MS

    with blocking.Admin(server.address) as admin:
        admin.commit_position("job", topic, 0, 1)
    [lag] = ask("lag", "job", "--json").objects
    assert (lag["topic"], lag["lag"]) == (topic, len(TIMES_MS) - 1)
    assert "job" in ask("lag", "job").out
    ask("doctor")


def test_what_is_stored_can_be_looked_at(run: Ask, topic: str, server: BrokerThread) -> None:
    folder = server.data_dir / f"{topic}-0"
    seen = [
        line.get("timestamp_ms")
        for file in sorted(folder.glob("*.log"))
        for line in run("dump", file, "--json").objects
    ]
    assert seen == list(TIMES_MS)
    for kind in ("index", "timeindex", "appendtime"):
        for file in folder.glob(f"*.{kind}"):
            run("dump", file)
            run("dump", file, "--json")
