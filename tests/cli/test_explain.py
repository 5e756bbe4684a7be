"""`horolog explain`: when segments go and what keeps them, how an offset was found."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

import horolog
from horolog.server.broker import Broker
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult

Run = Callable[..., CommandResult]

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def ask(
    run: Run, horolog_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., CommandResult]:
    """As `run`, asking a broker of the test's own."""
    monkeypatch.setenv("HOROLOG_SERVER", horolog_broker.address)
    return run


@pytest.fixture
def horolog_settings() -> Mapping[str, object]:
    return {"retention.ms": DAY_MS, "segment.ms": HOUR_MS}


def append(broker: BrokerThread, *ages_ms: int) -> None:
    """Append messages that are so old, with negative ages from the future, a set each."""

    async def run() -> None:
        async with horolog.Producer(broker.address) as producer:
            now_ms = broker.clock.now_ms()
            for age_ms in ages_ms:
                await producer.send("clicks", b"value", timestamp_ms=now_ms - age_ms)

    asyncio.run(run())


def metrics_of(broker: BrokerThread) -> str:
    """The metrics, made in the broker's own thread, which goes on changing them."""

    async def text(running: Broker) -> bytes:
        return running.metrics_text()

    return broker.in_loop(text).decode()


def pinned(broker: BrokerThread) -> int:
    """What the metrics say of the topic's pinned segments."""
    behind = metrics_of(broker).partition('horolog_pinned_segments{topic="clicks"} ')[2]
    return int(float(behind.split()[0]))


def test_each_segment_with_what_pins_it_and_when_it_goes(
    horolog_broker: BrokerThread, ask: Run
) -> None:
    horolog_broker.clock.freeze()
    now_ms = horolog_broker.clock.now_ms()
    append(horolog_broker, 5 * HOUR_MS, 4 * HOUR_MS, 4 * HOUR_MS + 1, 2 * HOUR_MS, HOUR_MS - 1)
    first, second, active = ask("explain", "retention", "clicks", "--json").objects
    assert [one["base_offset"] for one in (first, second, active)] == [0, 3, 4]
    assert (first["largest_timestamp_ms"], first["pinned_by_offset"]) == (now_ms - 4 * HOUR_MS, 1)
    assert first["goes_ms"] == now_ms - 4 * HOUR_MS + DAY_MS + 1
    assert (first["verdict"], first["ahead_of_clock_ms"]) == ("kept", 0)
    assert not first["active"]
    assert active["active"]
    minute_ms = 60_000
    assert first["worst_case_ms"] == HOUR_MS + DAY_MS + 5 * minute_ms + minute_ms
    assert second["waits_for_segment"] is None


def test_a_time_in_the_future_is_told_in_words(horolog_broker: BrokerThread, ask: Run) -> None:
    horolog_broker.clock.freeze()
    append(horolog_broker, 0, -10 * DAY_MS, 0, -DAY_MS)
    assert pinned(horolog_broker) == 1
    objects = ask("explain", "retention", "clicks", "--json").objects
    assert [one["ahead_of_clock_ms"] for one in objects] == [0, 10 * DAY_MS]
    append(horolog_broker, -12 * DAY_MS, 0)
    assert pinned(horolog_broker) == 2
    told = ask("explain", "retention", "clicks").out
    assert (
        "The message at offset 1 has a time 10 d in the future, so segment 1 and the 1 segment "
        "behind it cannot go before"
    ) in told
    assert "message.timestamp.after.max.ms" in told


def test_a_segment_waits_for_an_older_one(horolog_broker: BrokerThread, ask: Run) -> None:
    append(horolog_broker, -2 * HOUR_MS)

    async def roll() -> None:
        async with horolog.Admin(horolog_broker.address) as admin:
            await admin.alter_topic("clicks", {"segment.bytes": "100"})

    asyncio.run(roll())
    append(horolog_broker, HOUR_MS)
    first, second = ask("explain", "retention", "clicks", "--json").objects
    assert second["waits_for_segment"] == first["base_offset"] == 0
    assert second["goes_ms"] == first["goes_ms"]


def test_when_age_deletes_nothing(horolog_broker: BrokerThread, ask: Run) -> None:
    ask("topic", "create", "empty")
    assert ask("explain", "retention", "empty", "--json").objects[0]["goes_ms"] is None
    ask("topic", "create", "kept", "--set", "retention.ms=-1", "--set", "retention.bytes=4096")
    (only,) = ask("explain", "retention", "kept", "--json").objects
    assert (only["goes_ms"], only["worst_case_ms"]) == (None, None)
    told = ask("explain", "retention", "kept").out
    assert "retention.ms is off" in told
    assert "retention.bytes is 4.0 KiB" in told


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_is_not_cleaned_yet(
    horolog_broker: BrokerThread, ask: Run, policy: str
) -> None:
    """By `explain retention`, `topic describe` and a metric."""
    size = 'horolog_not_cleaned_bytes{topic="clicks"} '
    ask("topic", "create", "clicks", "--set", f"cleanup.policy={policy}")
    ask("topic", "create", "plain")
    deletes = "delete" in policy
    (segment,) = ask("explain", "retention", "clicks", "--json").objects
    assert (segment["cleanup_policy"], segment["not_cleaned_yet"]) == (policy, True)
    assert (segment["worst_case_ms"] is not None) == deletes
    told = ask("explain", "retention", "clicks").out
    assert f"cleanup.policy is {policy}: not cleaned yet" in told
    assert ("A message can get" in told) == deletes
    assert ("Nothing goes because of its age" in told) != deletes
    told = ask("topic", "describe", "clicks").out
    assert f"cleanup.policy is {policy}: not cleaned yet" in told
    for topic, compacted in (("clicks", True), ("plain", False)):
        (described,) = ask("topic", "describe", topic, "--json").objects
        assert described["not_cleaned_yet"] is compacted
    metrics = metrics_of(horolog_broker)
    assert size in metrics
    assert size.replace("clicks", "plain") not in metrics


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_messages_without_a_key_are_counted(
    horolog_broker: BrokerThread, ask: Run, policy: str
) -> None:
    """Decision 43: those that were stored before the topic was compacted stay."""
    ask("topic", "create", "clicks", "--partitions", "2")
    append(horolog_broker, 0, 0, 0)
    ask("topic", "alter", "clicks", "--set", f"cleanup.policy={policy}")

    async def send_keyed() -> None:
        async with horolog.Producer(horolog_broker.address) as producer:
            await producer.send("clicks", b"value", key=b"key", partition=0)
            await producer.send("clicks", b"value", key=b"", partition=1)

    asyncio.run(send_keyed())
    counts = ask("explain", "compaction", "clicks", "--json").objects
    assert [one["partition"] for one in counts] == [0, 1]
    assert sum(one["messages"] for one in counts) == 5
    assert sum(one["without_key"] for one in counts) == 3
    assert {(one["cleanup_policy"], one["not_cleaned_yet"]) for one in counts} == {(policy, True)}
    (second,) = ask("explain", "compaction", "clicks", "--partition", "1", "--json").objects
    assert second == counts[1]
    told = ask("explain", "compaction", "clicks").out
    assert f"cleanup.policy is {policy}: not cleaned yet" in told
    assert f"clicks-1: {second['messages']} message" in told


def test_keys_are_counted_where_none_is_needed(horolog_broker: BrokerThread, ask: Run) -> None:
    append(horolog_broker, 0)
    ask("topic", "create", "empty")
    told = ask("explain", "compaction", "clicks").out
    assert "cleanup.policy is delete: messages need no key." in told
    assert "clicks-0: 1 message, 1 without a key." in told
    assert "empty-0: 0 messages, 0 without a key." in ask("explain", "compaction", "empty").out


def test_a_topic_that_does_not_exist(ask: Run) -> None:
    told = ask("explain", "retention", "nowhere", code=1).err
    assert "nowhere" in told
    assert "horolog topic list" in told


def test_how_an_offset_was_found(horolog_broker: BrokerThread, ask: Run) -> None:
    horolog_broker.clock.freeze()
    now_ms = horolog_broker.clock.now_ms()
    ask("topic", "create", "clicks", "--set", "index.interval.bytes=0")
    append(horolog_broker, 5 * HOUR_MS, 3 * HOUR_MS, 3 * HOUR_MS - 1, 3 * HOUR_MS - 2, HOUR_MS)
    at_ms = now_ms - 3 * HOUR_MS + 2
    (found,) = ask("explain", "offset", "clicks", "--at", str(at_ms), "--json").objects
    assert (found["offset"], found["timestamp_ms"]) == (3, at_ms)
    assert (found["segments"], found["ruled_out"], found["segment"]) == (3, 1, 1)
    assert found["entry_timestamp_ms"] < at_ms
    assert found["start_offset"] == found["entry_offset"]
    assert found["read_bytes"] == 39 * (3 - found["start_offset"])
    told = ask("explain", "offset", "clicks", "--at", str(at_ms)).out
    assert "clicks-0: 1 of 3 segments have no message of" in told
    assert "Offset 3, of" in told


def test_an_offset_of_a_time_behind_all_messages(horolog_broker: BrokerThread, ask: Run) -> None:
    append(horolog_broker, HOUR_MS)
    (found,) = ask("explain", "offset", "clicks", "--at", "now", "--json").objects
    assert (found["offset"], found["segment"], found["ruled_out"]) == (None, None, 1)
    assert "the next offset is 1" in ask("explain", "offset", "clicks", "--at", "now").out


def test_a_time_without_a_zone_is_wrong_usage(ask: Run) -> None:
    assert "has no zone" in ask("explain", "offset", "a", "--at", "2016-11-14", code=2).err
