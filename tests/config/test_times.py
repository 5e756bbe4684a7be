"""Times as people write them."""

import calendar
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.times import (
    EPOCH,
    NoZone,
    TimeError,
    format_length,
    format_time,
    parse_length,
    parse_range,
    parse_time,
    parse_time_or_range,
    parse_zone,
)

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
DATE = "2016-11-14T17:24:32Z"
DATE_MS = 1_479_144_272_000
LAST_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last time that has a date."""


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        pytest.param("2016-11-14T17:24:32.509Z", 1_479_144_272_509, id="seed-example"),
        pytest.param("2016-11-14t17:24:32z", DATE_MS, id="lower-case"),
        pytest.param("2016-11-14 17:24:32Z", DATE_MS, id="space"),
        pytest.param("2016-11-14T18:24:32+01:00", DATE_MS, id="east"),
        pytest.param("2016-11-14T07:54:32-09:30", DATE_MS, id="west-half-hour"),
        pytest.param("2016-11-14T18:24:32+0100", DATE_MS, id="offset-without-colon"),
        pytest.param("2016-11-14T17:24:32-00:00", DATE_MS, id="unknown-offset-is-utc"),
        pytest.param("2016-11-14T17:24:32.5Z", DATE_MS + 500, id="tenths"),
        pytest.param("2016-11-14T17:24:32.050Z", DATE_MS + 50, id="leading-zero"),
        pytest.param("2016-11-14T17:24:32.509999Z", DATE_MS + 510, id="the-next-millisecond"),
        pytest.param("2016-11-14T17:24:32.509000001Z", DATE_MS + 510, id="a-nanosecond-later"),
        pytest.param("2016-11-14T17:24:32.509000000Z", DATE_MS + 509, id="no-nanosecond-later"),
        pytest.param("2016-11-14T17:24:31.9991Z", DATE_MS, id="the-next-second"),
        pytest.param("1970-01-01T00:00:00Z", 0, id="epoch"),
        pytest.param("1969-12-31T23:00:00-01:00", 0, id="epoch-from-the-west"),
        pytest.param("2000-02-29T00:00:00Z", 951_782_400_000, id="leap-year-400"),
        pytest.param("2024-02-29T12:00:00Z", 1_709_208_000_000, id="leap-year-4"),
        pytest.param("9999-12-31T23:59:59.999Z", LAST_MS, id="last"),
        pytest.param("@2016-11-14T17:24:32Z", DATE_MS, id="at-sign"),
        pytest.param("now", NOW_MS, id="now"),
        pytest.param("@now", NOW_MS, id="at-now"),
        pytest.param("@-1h", NOW_MS - HOUR_MS, id="hour"),
        pytest.param("@-7d", NOW_MS - 7 * 24 * HOUR_MS, id="days"),
        pytest.param("@-2w", NOW_MS - 14 * 24 * HOUR_MS, id="weeks"),
        pytest.param("@-5m", NOW_MS - 300_000, id="minutes"),
        pytest.param("@-5ms", NOW_MS - 5, id="milliseconds"),
        pytest.param("@-5s", NOW_MS - 5000, id="seconds"),
        pytest.param("@-1h30m", NOW_MS - HOUR_MS * 3 // 2, id="combined"),
        pytest.param("@-1w2d3h4m5s6ms", NOW_MS - 788_645_006, id="all-units"),
        pytest.param("@-0s", NOW_MS, id="nothing"),
        pytest.param("0", 0, id="zero"),
        pytest.param("100000000000", 10**11, id="smallest-number"),
        pytest.param("100000000000000", 10**14, id="largest-number"),
        pytest.param("1479144272509", 1_479_144_272_509, id="milliseconds-number"),
    ],
)
def test_what_is_a_time(text: str, expected_ms: int) -> None:
    assert parse_time(text, NOW_MS) == expected_ms


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        pytest.param("2016-11-14", "write 2016-11-14T00:00:00Z", id="bare-date"),
        pytest.param("@2016-11-14", "write 2016-11-14T00:00:00Z", id="bare-date-at"),
        pytest.param("2016-11-14T17", "write 2016-11-14T17:00:00Z", id="naive-hour"),
        pytest.param("2016-11-14T17:24", "write 2016-11-14T17:24:00Z", id="naive-minute"),
        pytest.param("2016-11-14 17:24:32", "write 2016-11-14 17:24:32Z", id="naive"),
        pytest.param("2016-11-14T17:24:32.509", "write 2016-11-14T17:24:32.509Z", id="naive-ms"),
        pytest.param("2016-11-14T17:24Z", "no seconds", id="no-seconds"),
        pytest.param("2016-11-14T17:24:32+010", "RFC 3339", id="zone-of-three-digits"),
        pytest.param("2016-11-14T17:24:32+2400", "zone", id="zone-hours-without-colon"),
        pytest.param("2016-11-14T17:24:32+24:00", "zone", id="zone-hours"),
        pytest.param("2016-11-14T17:24:32+01:60", "zone", id="zone-minutes"),
        pytest.param("2016-11-14T17:24:32 Europe/Paris", "RFC 3339", id="zone-name"),
        pytest.param("2016-11-14T17:24:32,5Z", "RFC 3339", id="comma"),
        pytest.param("20161114T172432Z", "RFC 3339", id="iso-basic"),
        pytest.param("2023-02-29T00:00:00Z", "not a date", id="no-leap-year"),
        pytest.param("1900-02-29T00:00:00Z", "not a date", id="no-leap-year-100"),
        pytest.param("2016-13-01T00:00:00Z", "not a date", id="month"),
        pytest.param("2016-11-14T24:00:00Z", "not a date", id="hour-24"),
        pytest.param("2016-12-31T23:59:60Z", "leap second", id="leap-second"),
        pytest.param("1969-12-31T23:59:59.999Z", "before 1970", id="minus-1-is-a-sentinel"),
        pytest.param("0001-01-01T00:00:00+23:59", "before 1970", id="before-year-1"),
        pytest.param("@-20000d", "before 1970", id="days-before-1970"),
        pytest.param("1h", "write @-1h", id="length"),
        pytest.param("-1h", "write @-1h", id="length-without-at"),
        pytest.param("@1h", "write @-1h", id="length-ahead"),
        pytest.param("@-1", "not a time", id="no-unit"),
        pytest.param("@-h", "not a time", id="no-count"),
        pytest.param("@-1m1h", "not a time", id="units-out-of-order"),
        pytest.param("@-1y", "not a time", id="years-differ"),
        pytest.param("@--1h", "not a time", id="two-signs"),
        pytest.param("@", "not a time", id="only-at"),
        pytest.param("", "not a time", id="empty"),
        pytest.param("yesterday", "no zone", id="yesterday"),
        pytest.param("today 14:00", "no zone", id="today"),
        pytest.param("14:05", "no zone", id="time-of-day"),
        pytest.param("tomorrow", "not a time", id="word"),
        pytest.param("NOW", "not a time", id="upper-case-now"),
        pytest.param("latest", "not a time", id="position"),
        pytest.param("-1", "not a time", id="negative-number"),
        pytest.param("1e12", "not a time", id="exponent"),
        pytest.param("01479144272509", "not a time", id="leading-zero"),
        pytest.param("1_479_144_272_509", "not a time", id="underscores"),
        pytest.param("\u0661\u0662\u0663", "not a time", id="other-digits"),
        pytest.param("2016-11-14T17:24:32Z\n", "not a time", id="line-feed"),
        pytest.param("9" * 5000, "not a time", id="very-long"),
        pytest.param("1", "looks like seconds", id="one"),
        pytest.param("1479144272", "write 1479144272000 if it is seconds", id="seconds"),
        pytest.param("99999999999", "looks like seconds", id="just-below"),
        pytest.param("100000000000001", "looks like microseconds", id="just-above"),
        pytest.param("1479144272509000", "write 1479144272509 if", id="microseconds"),
        pytest.param("1479144272509000000", "write 1479144272509 if", id="nanoseconds"),
    ],
)
def test_what_is_refused_and_the_hint(text: str, hint: str) -> None:
    with pytest.raises(TimeError) as refused:
        parse_time(text, NOW_MS)
    assert hint in str(refused.value)
    assert len(str(refused.value)) < 400


def test_no_number_is_advised_that_is_refused_as_well() -> None:
    with pytest.raises(TimeError) as refused:
        parse_time("5", NOW_MS)
    assert "write" not in str(refused.value)


@pytest.mark.parametrize("number", [1, 150, 1_479_144_272, 10**14 + 1, 2**63 - 1])
def test_any_unit_takes_a_number_as_it_is(number: int) -> None:
    assert parse_time(str(number), NOW_MS, any_unit=True) == number


def test_any_unit_does_not_take_what_no_message_can_have() -> None:
    with pytest.raises(TimeError, match="64 bits"):
        parse_time(str(2**63), NOW_MS, any_unit=True)
    with pytest.raises(TimeError, match="no zone"):
        parse_time("2016-11-14", NOW_MS, any_unit=True)


@pytest.mark.parametrize(
    ("text", "start_ms", "end_ms"),
    [
        pytest.param(f"@{DATE}:1h", DATE_MS, DATE_MS + HOUR_MS, id="redpanda-7691-date-plus-1h"),
        pytest.param("@:-1h", None, NOW_MS - HOUR_MS, id="redpanda-9667-from-the-beginning"),
        pytest.param("@-2h:-1h", NOW_MS - 2 * HOUR_MS, NOW_MS - HOUR_MS, id="both-from-now"),
        pytest.param("@-2h:1h", NOW_MS - 2 * HOUR_MS, NOW_MS - HOUR_MS, id="length-from-start"),
        pytest.param("@-1h:", NOW_MS - HOUR_MS, None, id="open-end"),
        pytest.param("@:", None, None, id="open-both"),
        pytest.param("@-1h:now", NOW_MS - HOUR_MS, NOW_MS, id="until-now"),
        pytest.param("@now:5m", NOW_MS, NOW_MS + 300_000, id="from-now-on"),
        pytest.param("@now:now", NOW_MS, NOW_MS, id="empty-range"),
        pytest.param(f"@{DATE}:{DATE}", DATE_MS, DATE_MS, id="two-dates"),
        pytest.param(f"@{DATE}:-1h", DATE_MS, NOW_MS - HOUR_MS, id="date-and-from-now"),
        pytest.param(
            "@2016-11-14T18:24:32+01:00:2016-11-14T19:24:32+01:00",
            DATE_MS,
            DATE_MS + HOUR_MS,
            id="offsets-have-colons",
        ),
        pytest.param("@1479144272509:1479144272510", 1479144272509, 1479144272510, id="numbers"),
        pytest.param(f"@0:{DATE}", 0, DATE_MS, id="zero"),
        pytest.param(f"@:{DATE}", None, DATE_MS, id="until-a-date"),
        pytest.param(f"@{DATE}:", DATE_MS, None, id="from-a-date"),
    ],
)  # fmt: skip
def test_what_is_a_range(text: str, start_ms: int | None, end_ms: int | None) -> None:
    assert parse_range(text, NOW_MS) == (start_ms, end_ms)
    assert parse_time_or_range(text, NOW_MS) == (start_ms, end_ms)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        pytest.param("-2h:1h", "write @A:B", id="no-at"),
        pytest.param("@-2h", "write @A:B", id="no-colon"),
        pytest.param("@:1h", "there is none", id="length-from-nothing"),
        pytest.param("@1h:2h", "length of time", id="start-is-a-length"),
        pytest.param("@-1h:-2h", "before it starts", id="backwards"),
        pytest.param("@2016-11-14:1h", "no zone", id="bare-date"),
        pytest.param("@2016-11-14T17:24:32:1h", "write 2016-11-14T17:24:32Z", id="naive"),
        pytest.param(f"@{DATE}", "write @A:B", id="one-time"),
        pytest.param("@-1h::-2h", "no colon", id="two-colons"),
        pytest.param("@-1h:@-2h", "second @", id="second-at"),
        pytest.param("@now:999999999999w", "64 bits", id="end-of-time"),
        pytest.param("@1479144272:now", "looks like seconds", id="seconds"),
        pytest.param("@a:b", "not a time", id="words"),
    ],
)
def test_what_is_no_range(text: str, hint: str) -> None:
    with pytest.raises(TimeError) as refused:
        parse_range(text, NOW_MS)
    assert hint in str(refused.value)


def test_a_time_or_a_range_says_why_it_is_neither() -> None:
    assert parse_time_or_range(f"@{DATE}", NOW_MS) == (DATE_MS, None)
    assert parse_time_or_range(DATE, NOW_MS) == (DATE_MS, None)
    with pytest.raises(TimeError, match="no zone"):
        parse_time_or_range("@2016-11-14T17:24:32", NOW_MS)
    with pytest.raises(TimeError, match="no seconds"):
        parse_time_or_range("@2016-11-14T17:24Z", NOW_MS)
    with pytest.raises(TimeError, match="not a range"):
        parse_time_or_range("@2016-11-14:1h", NOW_MS)


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_479_144_272_509, "2016-11-14T17:24:32.509Z"),
        (LAST_MS, "9999-12-31T23:59:59.999Z"),
        (LAST_MS + 1, "253402300800000 ms"),
        (2**63 - 1, "9223372036854775807 ms"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (-(2**63), "-9223372036854775808 ms"),
    ],
)
def test_every_64_bit_number_can_be_shown(timestamp_ms: int, text: str) -> None:
    assert format_time(timestamp_ms) == text


@given(st.integers(0, LAST_MS))
def test_what_is_shown_can_be_read_back(timestamp_ms: int) -> None:
    assert parse_time(format_time(timestamp_ms), NOW_MS) == timestamp_ms


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30)),
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
)
def test_agrees_with_the_calendar_in_every_zone(moment: datetime, offset_minutes: int) -> None:
    sign = "-" if offset_minutes < 0 else "+"
    hours, minutes = divmod(abs(offset_minutes), 60)
    text = f"{moment.isoformat(timespec='milliseconds')}{sign}{hours:02}:{minutes:02}"
    seconds = calendar.timegm(moment.timetuple()) - 60 * offset_minutes
    assert parse_time(text, NOW_MS) == 1000 * seconds + moment.microsecond // 1000


@given(st.integers(0, LAST_MS), st.integers(0, LAST_MS), st.sampled_from(["dates", "offsets"]))
def test_ranges_of_dates_split_at_their_one_colon(first_ms: int, second_ms: int, kind: str) -> None:
    start_ms, end_ms = sorted((first_ms, second_ms))
    sides = [format_time(start_ms), format_time(end_ms)]
    if kind == "offsets":
        sides = [side.replace("Z", "+00:00") for side in sides]
    assert parse_range(f"@{sides[0]}:{sides[1]}", NOW_MS) == (start_ms, end_ms)


@given(st.text(max_size=40) | st.from_regex(r"@?[-0-9TZ:.+hmsdw ]{0,40}", fullmatch=True))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    for parse in (parse_time, parse_range, parse_time_or_range):
        try:
            result = parse(text, NOW_MS)
        except TimeError:
            continue
        times = result if isinstance(result, tuple) else (result,)
        assert all(time is None or time >= 0 for time in times)


def test_the_epoch_is_the_epoch() -> None:
    assert datetime(1970, 1, 1, tzinfo=UTC) - EPOCH == timedelta(0)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("250ms", 250), ("30s", 30_000), ("1h30m", 5_400_000), ("7d", 604_800_000), ("0s", 0)],
)
def test_lengths_of_time(text: str, expected_ms: int) -> None:
    assert parse_length(text) == expected_ms


@pytest.mark.parametrize("text", ["", "5", "-5m", "@-5m", "5 m", "m", "1m1h", "now", "9" * 300])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(TimeError, match=r"not a length of time|not a time"):
        parse_length(text)


BERLIN = ZoneInfo("Europe/Berlin")
MIDDAY_MS = 1_479_121_200_000
"""2016-11-14 12:00 in Berlin."""


def at(text: str) -> int:
    return parse_time(text, MIDDAY_MS, zone=BERLIN)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("14:05", "2016-11-14T14:05:00+01:00"),
        ("9:05", "2016-11-14T09:05:00+01:00"),
        ("14:05:30.25", "2016-11-14T14:05:30.250+01:00"),
        ("14:05:30.0001", "2016-11-14T14:05:30.001+01:00"),
        ("@14:05", "2016-11-14T14:05:00+01:00"),
        ("today", "2016-11-14T00:00:00+01:00"),
        ("today 14:00", "2016-11-14T14:00:00+01:00"),
        ("yesterday", "2016-11-13T00:00:00+01:00"),
        ("yesterday 23:59:59", "2016-11-13T23:59:59+01:00"),
        ("2016-07-14", "2016-07-14T00:00:00+02:00"),
        ("2016-07-14 14:05", "2016-07-14T14:05:00+02:00"),
        ("2016-07-14T14:05:06", "2016-07-14T14:05:06+02:00"),
        ("2016-07-14T14:05:06Z", "2016-07-14T14:05:06Z"),
        ("2016-10-30 01:59", "2016-10-30T01:59:00+02:00"),
        ("2016-10-30 03:00", "2016-10-30T03:00:00+01:00"),
    ],
)
def test_dates_and_times_of_day_in_a_zone(text: str, same: str) -> None:
    assert at(text) == parse_time(same, MIDDAY_MS)
    with pytest.raises(NoZone) if same[-1] != "Z" else nullcontext():
        parse_time(text, MIDDAY_MS)


def test_the_day_is_that_of_the_zone() -> None:
    just_after_midnight_ms = parse_time("2016-11-14T00:30:00+01:00", 0)
    assert parse_time("today", just_after_midnight_ms, zone=BERLIN) == parse_time(
        "2016-11-13T23:00:00Z", 0
    )
    assert parse_time("today", just_after_midnight_ms, zone=UTC) == parse_time(
        "2016-11-13T00:00:00Z", 0
    )


@pytest.mark.parametrize(
    ("text", "zone", "hint"),
    [
        ("2016-03-27 02:30", "Europe/Berlin", "does not exist in Europe/Berlin"),
        ("2016-10-30 02:30", "Europe/Berlin", "02:30:00+02:00 or 2016-10-30T02:30:00+01:00"),
        ("2011-12-30", "Pacific/Apia", "the calendar skips that day"),
        ("2011-12-30 12:00", "Pacific/Apia", "does not exist"),
        ("2016-02-30", "UTC", "not a date"),
        ("24:00", "UTC", "not a date and time"),
        ("14:60", "UTC", "not a date and time"),
        ("14:05:60", "UTC", "leap second"),
        ("1969-12-31 12:00", "UTC", "before 1970"),
        ("2016-11-14 14", "UTC", "not a time"),
        ("tomorrow", "UTC", "not a time"),
        ("0001-01-01", "+01:00", "not a date"),
    ],
)
def test_a_local_time_that_means_nothing_or_two_moments_is_refused(
    text: str, zone: str, hint: str
) -> None:
    with pytest.raises(TimeError) as refused:
        parse_time(text, MIDDAY_MS, zone=parse_zone(zone))
    assert hint in str(refused.value)


def test_a_day_without_midnight_begins_with_its_first_moment() -> None:
    zone = ZoneInfo("America/Sao_Paulo")
    expected = parse_time("2016-10-16T01:00:00-02:00", 0)
    assert parse_time("2016-10-16", 0, zone=zone) == expected


def test_ranges_of_local_times() -> None:
    def between(text: str) -> tuple[int | None, int | None]:
        return parse_time_or_range(text, MIDDAY_MS, zone=BERLIN)

    two, three = at("14:00"), at("15:00")
    assert between("@14:00:15:00") == between("@14:00:1h") == (two, three)
    assert between("@today 14:00:today 15:00") == (two, three)
    assert between("@yesterday:today") == (at("yesterday"), at("today"))
    with pytest.raises(TimeError, match="more than one way"):
        between("@14:00:15:16:00")


@given(
    moment=st.datetimes(datetime(1971, 1, 1), datetime(2037, 12, 31)),
    name=st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"]),
)
def test_a_local_time_is_refused_or_means_what_clocks_there_show(
    moment: datetime, name: str
) -> None:
    zone = ZoneInfo(name)
    local = moment.replace(microsecond=0)
    try:
        found = parse_time(local.isoformat(sep=" "), 0, zone=zone)
    except TimeError:
        offsets = {local.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1)}
        assert len(offsets) == 2
        return
    there = (EPOCH + timedelta(milliseconds=found)).astimezone(zone)
    assert there.replace(tzinfo=None, fold=0) == local


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Europe/Berln", "did you mean Europe/Berlin?"),
        ("Europe", "not a time zone"),
        ("../etc/passwd", "not a time zone"),
        ("", "not a time zone"),
        ("+24:00", "not a time zone"),
        ("x" * 1000, "such as Europe/Berlin"),
    ],
)
def test_what_is_no_zone(text: str, hint: str) -> None:
    with pytest.raises(TimeError) as refused:
        parse_zone(text)
    assert hint in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("text", ["UTC", "Z", "+00:00", "-0000", "Etc/UTC"])
def test_names_of_utc(text: str) -> None:
    assert parse_time("2016-11-14 17:24:32", 0, zone=parse_zone(text)) == DATE_MS


@given(st.integers(0, 10**15))
def test_lengths_are_read_as_they_are_written(length_ms: int) -> None:
    assert parse_length(format_length(length_ms)) == length_ms
