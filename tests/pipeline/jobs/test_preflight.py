"""What keeps a topic from taking old data and keeping it."""

from dataclasses import replace

import pytest

from horolog.pipeline.jobs.bootstrap import DataFacts, FindingLevel, preflight
from horolog.testing.broker import BrokerThread

from ..brokers import create

DAY = 86_400_000


@pytest.fixture
def facts(horolog_broker: BrokerThread) -> DataFacts:
    """Rows of the last three days."""
    now_ms = horolog_broker.clock.now_ms()
    return DataFacts(
        rows=100,
        first_ms=now_ms - 3 * DAY,
        last_ms=now_ms - DAY,
        without_time=0,
        largest_bytes=1000,
        total_bytes=100_000,
    )


def found(
    broker: BrokerThread, facts: DataFacts, **settings: str
) -> list[tuple[FindingLevel, str]]:
    """Level and fix of what is found for a topic with these settings."""
    create(broker, "t", 1, {name.replace("_", "."): value for name, value in settings.items()})
    findings = preflight(broker.address, "t", facts, clock=broker.clock)
    return [(one.level, one.fix.removeprefix("horolog topic alter t --set ")) for one in findings]


def test_a_topic_that_keeps_everything_takes_it(
    horolog_broker: BrokerThread, facts: DataFacts
) -> None:
    assert found(horolog_broker, replace(facts, without_key=3)) == []


def test_a_topic_that_is_not_there(horolog_broker: BrokerThread, facts: DataFacts) -> None:
    (finding,) = preflight(horolog_broker.address, "t", facts, clock=horolog_broker.clock)
    assert finding.level is FindingLevel.REFUSED
    assert finding.fix == "horolog topic create t --partitions 1 --set retention.ms=-1"


@pytest.mark.parametrize(
    ("setting", "value", "fix"),
    [
        ("message_timestamp_type", "LogAppendTime", "message.timestamp.type=CreateTime"),
        ("message_format_version", "0.9.0", "message.format.version=producer"),
        (
            "max_message_time_difference_ms",
            str(2 * DAY),
            "max.message.time.difference.ms=9223372036854775807",
        ),
        (
            "message_timestamp_before_max_ms",
            str(2 * DAY),
            "message.timestamp.before.max.ms=9223372036854775807",
        ),
        ("retention_ms", str(2 * DAY), "retention.ms=-1"),
        ("max_message_bytes", "1000", "max.message.bytes=1100"),
    ],
)
def test_a_topic_that_would_refuse_or_lose_rows(
    horolog_broker: BrokerThread, facts: DataFacts, setting: str, value: str, fix: str
) -> None:
    assert found(horolog_broker, facts, **{setting: value}) == [(FindingLevel.REFUSED, fix)]


def test_limits_that_are_wide_enough(horolog_broker: BrokerThread, facts: DataFacts) -> None:
    assert (
        found(
            horolog_broker,
            facts,
            max_message_time_difference_ms=str(4 * DAY),
            message_timestamp_after_max_ms="0",
            retention_ms=str(4 * DAY),
            max_message_bytes="1100",
        )
        == []
    )


def test_the_limit_of_its_direction_wins(horolog_broker: BrokerThread, facts: DataFacts) -> None:
    assert (
        found(
            horolog_broker,
            facts,
            max_message_time_difference_ms="1000",
            message_timestamp_before_max_ms=str(4 * DAY),
        )
        == []
    )


def test_rows_of_the_future(horolog_broker: BrokerThread, facts: DataFacts) -> None:
    later = replace(facts, last_ms=horolog_broker.clock.now_ms() + DAY)
    refused = found(horolog_broker, later, message_timestamp_after_max_ms="1000")
    assert refused == [(FindingLevel.REFUSED, "message.timestamp.after.max.ms=9223372036854775807")]


def test_warnings_do_not_keep_from_loading(horolog_broker: BrokerThread, facts: DataFacts) -> None:
    rows = replace(facts, without_time=3)
    assert found(horolog_broker, rows, retention_bytes="1000", segment_ms="1000") == [
        (FindingLevel.WARNING, ""),
        (FindingLevel.WARNING, "retention.bytes=-1"),
        (FindingLevel.WARNING, "segment.ms=172800"),
    ]


def test_rows_without_a_value(horolog_broker: BrokerThread, facts: DataFacts) -> None:
    ((level, fix),) = found(horolog_broker, replace(facts, without_value=3))
    assert level is FindingLevel.REFUSED
    assert "coalesce" in fix


def test_a_compacted_topic_has_no_retention(horolog_broker: BrokerThread, facts: DataFacts) -> None:
    compacted = {"retention_ms": "1000", "retention_bytes": "1000", "cleanup_policy": "compact"}
    assert found(horolog_broker, facts, **compacted) == []


def test_a_compacted_topic_that_is_deleted_from_has_retention(
    horolog_broker: BrokerThread, facts: DataFacts
) -> None:
    assert found(horolog_broker, facts, retention_ms="1000", cleanup_policy="compact,delete") == [
        (FindingLevel.REFUSED, "retention.ms=-1")
    ]


def test_rows_without_a_key(horolog_broker: BrokerThread, facts: DataFacts) -> None:
    rows = replace(facts, without_key=3)
    ((level, fix),) = found(horolog_broker, rows, cleanup_policy="compact")
    assert level is FindingLevel.REFUSED
    assert "cleanup.policy=delete" in fix


def test_rows_without_any_time(horolog_broker: BrokerThread, facts: DataFacts) -> None:
    rows = replace(facts, first_ms=None, last_ms=None, without_time=100)
    assert found(horolog_broker, rows, retention_ms="1000") == [(FindingLevel.WARNING, "")]


def test_rows_before_the_epoch(horolog_broker: BrokerThread, facts: DataFacts) -> None:
    assert found(horolog_broker, replace(facts, first_ms=-1, last_ms=0)) == [
        (FindingLevel.REFUSED, "")
    ]
