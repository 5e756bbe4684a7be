"""Limits of clients that follow from how much memory there is."""

from pathlib import Path

import pytest

from horolog.config.broker import broker_settings
from horolog.server.network.held_memory import SMALLEST_BYTES, _left_in_container, fitting_limits

MIB = 1 << 20
SETTINGS = broker_settings()


def limits(left_bytes: int | None) -> tuple[int, int, int]:
    fitting = fitting_limits(SETTINGS, left_bytes)
    assert fitting.keys() == {"max_buffered_bytes", "max_frame_bytes", "max_response_bytes"}
    return tuple(bytes_ // MIB for bytes_ in fitting.values())  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("left_mib", "expected"),
    [
        pytest.param(None, (256, 100, 55), id="no-limit"),
        pytest.param(4096, (256, 100, 55), id="plenty"),
        pytest.param(1024, (256, 100, 55), id="just-enough"),
        pytest.param(800, (200, 100, 55), id="less"),
        pytest.param(400, (100, 50, 50), id="little"),
        pytest.param(80, (20, 10, 10), id="hardly-any"),
        pytest.param(0, (1, 1, 1), id="none"),
    ],
)
def test_limits_are_lowered_to_what_fits(
    left_mib: int | None, expected: tuple[int, int, int]
) -> None:
    assert limits(None if left_mib is None else left_mib * MIB) == expected


def test_settings_that_are_lower_stay() -> None:
    low = broker_settings({"max.buffered.bytes": str(2 * MIB), "max.frame.bytes": "2000"})
    fitting = fitting_limits(low, 0)
    assert fitting["max_buffered_bytes"] == SMALLEST_BYTES
    assert fitting["max_frame_bytes"] == 2000


def test_cached_files_do_not_count_in_a_container(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("anon 200\nfile 650\nkernel 50\n")
    assert _left_in_container(tmp_path) == 750


def test_a_container_without_a_limit(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    with pytest.raises(ValueError, match="max"):
        _left_in_container(tmp_path)
