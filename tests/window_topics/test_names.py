"""Names of window topics: window -> name -> window, and what is an ordinary name."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.window_topics import (
    WindowName,
    find_window,
    parse_window_name,
    window_name,
)

HOUR_MS = 3_600_000
AT_14 = 1_479_132_000_000
"""2016-11-14T14:00:00Z."""

BASES = st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True).filter(
    lambda text: text not in (".", "..")
)
TIMES = st.integers(0, 253_402_300_799_999)


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("clicks..20161114T14Z..1h", WindowName("clicks", AT_14, AT_14 + HOUR_MS)),
        ("clicks..20161114T14Z..60m", WindowName("clicks", AT_14, AT_14 + HOUR_MS)),
        ("clicks..20161114T14Z..1h30m", WindowName("clicks", AT_14, AT_14 + HOUR_MS * 3 // 2)),
        (
            "clicks..1479132300000..1479132360000",
            WindowName("clicks", 1_479_132_300_000, 1_479_132_360_000),
        ),
        (
            "clicks..20161114T140500Z..20161114T140600Z..append",
            WindowName("clicks", AT_14 + 300_000, AT_14 + 360_000, by_append=True),
        ),
        ("clicks..20161114T1405Z", WindowName("clicks", AT_14 + 300_000, None)),
        (
            "clicks..20161114T140500.250Z..append",
            WindowName("clicks", AT_14 + 300_250, None, by_append=True),
        ),
        ("a..b.c...20161114T14Z", WindowName("a..b.c.", AT_14, None)),
        (
            "a..20161114T14Z..20161114T15Z..1h",
            WindowName("a..20161114T14Z", AT_14 + HOUR_MS, AT_14 + 2 * HOUR_MS),
        ),
        ("a..1h..20161114T14Z", WindowName("a..1h", AT_14, None)),
        ("clicks..20161114T15Z..20161114T14Z", WindowName("clicks", AT_14 + HOUR_MS, AT_14)),
        ("clicks..20161114T14Z..0h", WindowName("clicks", AT_14, AT_14)),
        ("clicks..100000000000", WindowName("clicks", 10**11, None)),
        ("clicks..100000000000000", WindowName("clicks", 10**14, None)),
    ],
)
def test_what_names_say(name: str, window: WindowName) -> None:
    assert parse_window_name(name) == window
    assert window.is_empty == (window.until_ms is not None and window.until_ms <= window.from_ms)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "clicks",
        "clicks..yesterday",
        "clicks..1h",
        "clicks..append",
        "clicks..",
        "..20161114T14Z",
        "..20161114T14Z..1h",
        "...20161114T14Z",
        "clicks..20161114T14Z..",
        "clicks..20161114T14Z..soon",
        "clicks..20161114T14Z..append..1h",
        "clicks..2016-11-14T14Z",
        "clicks..20161114T14",
        "clicks..20161114",
        "clicks..20161114T24Z",
        "clicks..20160230T14Z",
        "clicks..20161114T1405.250Z",
        "clicks..20161114T140500.25Z",
        "clicks..19691231T23Z",
        "clicks..99999999999",
        "clicks..100000000000001",
        "clicks..1479132300",
        "clicks..\u0662\u0660\u0661\u0666\u0661\u0661\u0661\u0664T14Z",
        "clicks/..20161114T14Z",
        "click s..20161114T14Z",
        "clicks..20161114T14Z\n",
        "clicks..20161114T14Z..999999999999w",
        "c" * 240 + "..20161114T14Z",
    ],
)
def test_ordinary_names(name: str) -> None:
    assert parse_window_name(name) is None


def test_names_that_are_too_long_are_not_held_in_memory() -> None:
    """A request can have thousands of them, each of 32,000 characters. The least of three counts:
    another thread of the process may take memory beside one."""
    assert min(held_for_long_names(part) for part in range(3)) < 320_000


def held_for_long_names(part: int) -> int:
    """Bytes that are taken after names that no other part has were parsed."""
    tracemalloc.start()
    try:
        for number in range(100):
            assert parse_window_name(f"{'c' * 32_000}{part}-{number}..20161114T14Z") is None
            assert find_window((), f"{'d' * 32_000}{part}-{number}..20161114T14Z") is None
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return held_bytes


def test_the_longest_name_is_one() -> None:
    base = "c" * (249 - len("..20161114T14Z"))
    assert parse_window_name(f"{base}..20161114T14Z") == WindowName(base, AT_14, None)


@given(BASES, TIMES, st.none() | TIMES, st.booleans())
def test_window_to_name_to_window(
    base: str, from_ms: int, until_ms: int | None, by_append: bool
) -> None:
    window = WindowName(base, from_ms, until_ms, by_append)
    assert parse_window_name(window_name(window)) == window


@given(st.text(st.sampled_from("a.0123456789TZhmdappend-"), max_size=60))
def test_a_name_that_parses_is_written_as_a_name_of_the_same_window(name: str) -> None:
    window = parse_window_name(name)
    if window is not None:
        assert parse_window_name(window_name(window)) == window


def test_windows_that_no_name_says() -> None:
    for window in (
        WindowName("clicks", -1, None),
        WindowName("clicks", 253_402_300_800_000, None),
        WindowName("", AT_14, None),
        WindowName("c" * 240, AT_14, None),
    ):
        with pytest.raises(ValueError, match="window"):
            window_name(window)
