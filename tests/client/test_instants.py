"""Times given by programs: aware datetimes, milliseconds, and nothing that must be guessed."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from horolog import ConsumerRecord, TimeError, TimestampType
from horolog.client.arguments import epoch_ms, moment_ms

MOMENT_MS = 1_479_144_272_509


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (datetime(2016, 11, 14, 17, 24, 32, 509_000, tzinfo=UTC), MOMENT_MS),
        (datetime(2016, 11, 14, 17, 24, 32, 509_999, tzinfo=UTC), MOMENT_MS),
        (
            datetime(2016, 11, 14, 18, 24, 32, 509_000, tzinfo=timezone(timedelta(hours=1))),
            MOMENT_MS,
        ),
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), 253_402_300_799_999),
    ],
)
def test_an_aware_datetime(when: datetime, expected: int) -> None:
    assert epoch_ms(when, None, check_units=True) == expected


def test_the_time_of_a_record_is_an_aware_datetime() -> None:
    record = ConsumerRecord("t", 0, 7, MOMENT_MS, TimestampType.CREATE_TIME, None, b"v")
    assert record.time == datetime(2016, 11, 14, 17, 24, 32, 509_000, tzinfo=UTC)
    assert record.time.utcoffset() == timedelta(0)
    assert record._replace(timestamp_ms=None).time is None
    assert record._replace(timestamp_ms=0).time == datetime(1970, 1, 1, tzinfo=UTC)
    with pytest.raises(TimeError, match="t-0 at offset 7 is after the year 9999"):
        assert record._replace(timestamp_ms=2**62).time


def test_a_bound_between_two_milliseconds_is_the_later_one() -> None:
    """No message has a time between them: those of the earlier one are before the bound."""
    whole = datetime(2016, 11, 14, 17, 24, 32, 509_000, tzinfo=UTC)
    for microseconds, expected in ((0, MOMENT_MS), (1, MOMENT_MS + 1), (999, MOMENT_MS + 1)):
        bound = whole + timedelta(microseconds=microseconds)
        assert epoch_ms(bound, None, check_units=True, is_bound=True) == expected
        assert moment_ms(bound, "start", check_units=True) == expected


def test_a_naive_datetime_is_refused() -> None:
    with pytest.raises(TimeError, match=r"has no time zone.*tzinfo=datetime\.UTC"):
        epoch_ms(datetime(2016, 11, 14), None, check_units=True)


def test_a_datetime_before_the_epoch_is_refused() -> None:
    with pytest.raises(TimeError, match="before 1970"):
        epoch_ms(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), None, check_units=True)


@pytest.mark.parametrize("number", [0, 10**11, MOMENT_MS, 10**14])
def test_milliseconds(number: int) -> None:
    assert epoch_ms(None, number, check_units=True) == number


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (1, "seconds; in milliseconds it is 1000"),
        (MOMENT_MS // 1000, "seconds; in milliseconds it is 1479144272000"),
        (10**11 - 1, "seconds"),
        (10**14 + 1, "microseconds"),
        (MOMENT_MS * 1000, f"microseconds; in milliseconds it is {MOMENT_MS}"),
        (MOMENT_MS * 1_000_000, f"nanoseconds; in milliseconds it is {MOMENT_MS}"),
    ],
)
def test_another_unit_is_refused_with_a_hint_unless_units_are_not_checked(
    number: int, hint: str
) -> None:
    with pytest.raises(TimeError, match=f"looks like {hint}.*check_units=False"):
        epoch_ms(None, number, check_units=True)
    assert epoch_ms(None, number, check_units=False) == number


@pytest.mark.parametrize("number", [-1, -2, 2**63])
@pytest.mark.parametrize("check_units", [True, False])
def test_what_no_timestamp_can_be_is_refused(number: int, check_units: bool) -> None:
    with pytest.raises(TimeError, match=f"not {number}"):
        epoch_ms(None, number, check_units=check_units)


@pytest.mark.parametrize(
    ("when", "timestamp_ms"),
    [
        (datetime(2016, 11, 14, tzinfo=UTC), 0),
        (MOMENT_MS, None),
        ("2016-11-14", None),
        (None, 1.5),
        (None, True),
        (None, "0"),
    ],
)
def test_other_types_are_refused(when: Any, timestamp_ms: Any) -> None:
    with pytest.raises(TypeError):
        epoch_ms(when, timestamp_ms, check_units=True)


def test_nothing_given() -> None:
    assert epoch_ms(None, None, check_units=True) is None
