"""Fixtures of the directory tests: real files, a clock that stands still, recorded events."""

from pathlib import Path
from typing import Any

import pytest
from horolog.storage.files import SystemFiles
from horolog.testing.clock import ManualClock


class Events:
    """An observer that keeps what it was told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, event: str, /, **fields: object) -> None:
        self.seen.append((event, fields))

    def named(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.seen if name == event]


@pytest.fixture
def files() -> SystemFiles:
    return SystemFiles()


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def golden() -> Path:
    return Path(__file__).parents[1] / "golden"
