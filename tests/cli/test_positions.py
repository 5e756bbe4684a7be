"""Positions as the command line writes them."""

from datetime import UTC

import pytest

from horolog.cli.errors import WrongUsage
from horolog.cli.options import AtEnd, AtOffset, AtTime, Position, parse_bounds
from horolog.cli.reference import LOCAL_TIMES, RANGES, REFUSED, TIMES
from horolog.times import NoZone, TimeError, parse_time

NOW_MS = 1479144272509
HOUR_MS = 3_600_000
Bounds = tuple[Position | None, Position | None]


@pytest.mark.parametrize(
    ("start", "until", "bounds"),
    [
        (None, None, (None, None)),
        ("earliest", "latest", (AtEnd.EARLIEST, AtEnd.LATEST)),
        ("latest", "offset:7", (AtEnd.LATEST, AtOffset(7))),
        ("offset:0", "offset:9223372036854775807", (AtOffset(0), AtOffset(2**63 - 1))),
        ("@-1h", "now", (AtTime(NOW_MS - HOUR_MS), AtTime(NOW_MS))),
        ("1479144272509", None, (AtTime(NOW_MS), None)),
        ("2016-11-14T17:24:32.509Z", "offset:7", (AtTime(NOW_MS), AtOffset(7))),
        ("@-2h:1h", None, (AtTime(NOW_MS - 2 * HOUR_MS), AtTime(NOW_MS - HOUR_MS))),
        ("@-2h:-1h", None, (AtTime(NOW_MS - 2 * HOUR_MS), AtTime(NOW_MS - HOUR_MS))),
        ("@:-1h", None, (None, AtTime(NOW_MS - HOUR_MS))),
        ("@-1h:", None, (AtTime(NOW_MS - HOUR_MS), None)),
        ("@-1h:", "offset:7", (AtTime(NOW_MS - HOUR_MS), AtOffset(7))),
        (
            "@2016-11-14T17:24:32.509Z:2016-11-14T18:24:32.509Z",
            None,
            (AtTime(NOW_MS), AtTime(NOW_MS + HOUR_MS)),
        ),
    ],
)
def test_bounds(start: str | None, until: str | None, bounds: Bounds) -> None:
    assert parse_bounds(start, until, NOW_MS, any_unit=False) == bounds


@pytest.mark.parametrize(
    ("start", "until", "text"),
    [
        ("1479144272", None, "--from: 1479144272 looks like seconds"),
        (None, "1479144272509000", "--until: 1479144272509000 looks like microseconds"),
        ("2016-11-14", None, "--from: '2016-11-14' has no zone"),
        (None, "yesterday", "--until: 'yesterday' has no zone"),
        (None, "tomorrow", "--until: 'tomorrow' is not a time"),
        ("offset:-1", None, "--from: 'offset:-1' is not offset:N"),
        (None, "offset:9223372036854775808", "--until: 'offset:9223372036854775808' is not"),
        ("offset:", None, "--from: 'offset:' is not offset:N"),
        ("@-2h:1h", "now", "--until: the range in --from sets the end already"),
        (None, "@-2h:1h", "--until: "),
        ("@-1h:-2h", None, "before it starts"),
    ],
)
def test_what_is_no_position_is_wrong_usage_of_the_option(
    start: str | None, until: str | None, text: str
) -> None:
    with pytest.raises(WrongUsage) as caught:
        parse_bounds(start, until, NOW_MS, any_unit=False)
    assert text in str(caught.value)


def test_any_unit_takes_a_number_as_it_is() -> None:
    bounds = parse_bounds("5", "1479144272509000", NOW_MS, any_unit=True)
    assert bounds == (AtTime(5), AtTime(1479144272509000))


def test_the_times_on_the_reference_page_are_what_it_says() -> None:
    now, an_hour_ago = NOW_MS, NOW_MS - HOUR_MS
    assert {parse_time(text, NOW_MS) for text, _ in TIMES} == {now, an_hour_ago}
    for text in ("@-1d12h", "@-90m"):
        parse_time(text, NOW_MS)
    for text, _ in LOCAL_TIMES:
        parse_time(text, NOW_MS, zone=UTC)
        with pytest.raises(NoZone):
            parse_time(text, NOW_MS)
    for text, _ in REFUSED:
        with pytest.raises(TimeError):
            parse_time(text, NOW_MS)
    bounds = [parse_bounds(text, None, NOW_MS, False) for text, _ in RANGES]
    assert bounds[2] == bounds[3]
    assert [None in one for one in bounds] == [False, False, False, False, True, True]
