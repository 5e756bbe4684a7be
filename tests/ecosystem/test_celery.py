"""Celery with Kafka as the broker of its tasks, at the broker of the fixture `kafka_bootstrap`."""

from pathlib import Path

import pytest

from horolog.testing.waiting import wait_until

from .installing import PROGRAMS, python_of
from .running import run, running, tail

_LIMIT_SECONDS = 600
"""The first run installs Celery."""


@pytest.fixture
def address(kafka_bootstrap: str) -> str:
    """The address of the fixture's broker, in place of that of a process of its own."""
    return kafka_bootstrap


@pytest.mark.ecosystem
@pytest.mark.timeout(_LIMIT_SECONDS)
def test_workers_run_the_tasks_that_are_sent(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks sent before the worker starts, while it runs, and while there is none again."""
    notes = tmp_path / "notes"
    monkeypatch.setenv("ADDRESS", address)
    monkeypatch.setenv("NOTES", str(notes))
    python, program = python_of("celery"), PROGRAMS / "celery" / "tasks.py"
    worker = [python, "-m", "celery", "--workdir", program.parent, "-A", "tasks", "worker"]

    def send(*numbers: int) -> None:
        run([python, program, *numbers], tmp_path / "sending.log", seconds=60)

    def wait_for(*numbers: int) -> None:
        wanted = [str(number) for number in numbers]
        wait_until(
            lambda: notes.exists() and sorted(notes.read_text().split()) == wanted,
            within_s=120,
            state=lambda: tail(log),
        )

    send(1, 2)
    for name, first in (("first", 3), ("second", 5)):
        log = tmp_path / f"{name}.log"
        with running([*worker, "--pool", "solo"], log):
            wait_for(*range(1, first))
            send(first)
            wait_for(*range(1, first + 1))
        send(first + 1)
