"""Celery with Kafka as what its tasks go through."""

from pathlib import Path

import pytest

from horolog.testing.waiting import wait_until

from .installing import PROGRAMS, python_of
from .running import run, running, tail


@pytest.mark.ecosystem
def test_a_worker_does_the_tasks_that_are_sent(address: str, tmp_path: Path) -> None:
    """Also those of a time without a worker."""
    notes, log = tmp_path / "notes", tmp_path / "worker.log"
    environment = {"ADDRESS": address, "NOTES": str(notes)}
    python, folder = python_of("celery"), PROGRAMS / "celery"
    send = [python, folder / "tasks.py"]
    quiet = [f"--without-{what}" for what in ("gossip", "mingle", "heartbeat")]
    worker = [python, "-m", "celery", "-A", "tasks", "worker", "--pool", "solo", *quiet]

    def done() -> list[str]:
        return sorted(notes.read_text().split()) if notes.exists() else []

    run([*send, 1, 2], tmp_path / "send.log", seconds=60, environment=environment)
    with running(worker, log, folder=folder, environment=environment):
        wait_until(lambda: done() == ["1", "2"], within_s=100, state=lambda: tail(log))
        run([*send, 3], tmp_path / "send.log", seconds=60, environment=environment)
        wait_until(lambda: done() == ["1", "2", "3"], within_s=100, state=lambda: tail(log))
