"""Amounts with a unit: in settings of the broker and of topics, and as they are shown."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.config.broker import load
from horolog.config.setting import TIME_UNITS_MS, UnitError, format_amount, parse_amount
from horolog.config.topic import check_overrides, in_numbers, shown_value
from horolog.protocol.errors import InvalidConfig


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("retention.ms", "7d", 604_800_000),
        ("retention.ms", "1w", 604_800_000),
        ("retention.ms", "90s", 90_000),
        ("retention.ms", "1h30m", 5_400_000),
        ("retention.ms", "0s", 0),
        ("log.retention.hours", "7d", 168),
        ("log.retention.minutes", "2h", 120),
        ("segment.bytes", "1GiB", 2**30),
        ("segment.bytes", "1.5MiB", 3 * 2**19),
        ("retention.bytes", "10MB", 10_000_000),
        ("retention.bytes", "10 kB", 10_000),
        ("retention.bytes", "1TiB", 2**40),
        ("retention.bytes", "500B", 500),
    ],
)
def test_settings_take_units(name: str, text: str, number: int) -> None:
    assert in_numbers({name: text}) == {name: str(number)}
    assert check_overrides({name: text}) == check_overrides({name: str(number)})


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("log.retention.hours", "90s", "90s is not a whole number of hours"),
        ("segment.bytes", "10M", "M could be MiB or MB"),
        ("segment.bytes", "10Mb", "Mb could be MiB or MB"),
        ("segment.bytes", "1.0000001KiB", "not a whole number of bytes"),
    ],
)
def test_an_amount_that_fits_no_whole_number_is_refused(name: str, text: str, says: str) -> None:
    for check in (in_numbers, check_overrides):
        with pytest.raises(InvalidConfig, match="is refused: it must be") as refused:
            check({name: text})
        assert says in refused.value.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "7 days"),
        ("retention.ms", "7D"),
        ("retention.ms", "-7d"),
        ("retention.ms", "1GiB"),
        ("segment.bytes", "7d"),
        ("segment.bytes", "1GiB/s"),
        ("segment.bytes", "1" * 30 + "GiB"),
        ("segment.bytes", "9999999999TiB"),
        ("min.insync.replicas", "2s"),
        ("flush.messages", "1kB"),
    ],
)
def test_what_is_no_amount_of_the_setting_is_refused_with_its_range(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match="it must be a whole number"):
        check_overrides({name: text})


def test_the_refusal_says_that_units_may_be_written() -> None:
    with pytest.raises(InvalidConfig, match=r"or with a unit: 90s, 12h, 7d"):
        check_overrides({"retention.ms": "x"})
    with pytest.raises(InvalidConfig, match=r"or with a unit: 512KiB, 1GiB, 10MB"):
        check_overrides({"segment.bytes": "x"})


def test_names_that_are_not_known_are_left_to_the_server() -> None:
    given_settings = {"follower.fetch.limit": "7d", "compression.type": "lz4"}
    assert in_numbers(given_settings) == given_settings


def test_a_broker_takes_units_in_each_place(tmp_path: Path) -> None:
    file = tmp_path / "horolog.toml"
    file.write_text('retention.ms = "7d"\n"max.buffered.bytes" = "64MiB"\n')
    settings = load(file, {"HOROLOG_SEGMENT_BYTES": "1GiB"}, ["clock.settle.ms=90s"])
    assert settings.topic_defaults == {"retention.ms": "604800000", "segment.bytes": str(2**30)}
    assert (settings.max_buffered_bytes, settings.clock_settle_ms) == (64 * 2**20, 90_000)


def test_a_number_as_text_stays_refused_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "horolog.toml"
    file.write_text('retention.ms = "7"\n')
    with pytest.raises(InvalidConfig, match="is refused"):
        load(file, {}, [])


@given(number=st.integers(1, 2**63 - 1), unit=st.sampled_from([*TIME_UNITS_MS, "bytes", "bytes/s"]))
def test_what_is_shown_can_be_read_again(number: int, unit: str) -> None:
    shown = format_amount(number, unit)
    if shown != str(number):
        assert parse_amount(shown, unit) == number


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("retention.ms", "604800000", "7d"),
        ("retention.ms", "604800001", "7d1ms"),
        ("retention.ms", "-1", "no limit"),
        ("max.message.time.difference.ms", str(2**63 - 1), "no limit"),
        ("segment.bytes", "1073741824", "1GiB"),
        ("max.message.bytes", "1000012", "1000012"),
        ("retention.bytes", "10000000", "10MB"),
        ("segment.jitter.ms", "0", "0"),
        ("compression.type", "producer", "producer"),
        ("of.another.server", "1000", "1000"),
    ],
)
def test_settings_as_a_person_reads_them(name: str, text: str, shown: str) -> None:
    assert shown_value(name, text) == shown


def test_a_rate() -> None:
    assert parse_amount("10MB/s", "bytes/s") == parse_amount("10MB", "bytes/s") == 10_000_000
    assert format_amount(2**20, "bytes/s") == "1MiB/s"
    assert parse_amount("7d", "messages") is None
    with pytest.raises(UnitError):
        parse_amount("10G/s", "bytes/s")
