"""Each operation on the disk fails in turn, until a run has none left that could."""

import errno
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from horolog.protocol.errors import StorageError
from horolog.storage.files import RETRIABLE_ERRORS
from horolog.testing.requests import message_set

from .failing_life import FailingLife, Failure
from .life import Life
from .promises import Promise
from .scenarios import SCENARIOS, Scenario, Step, flush, start, stop

TRUNCATIONS = (SCENARIOS["truncation"].steps[0], SCENARIOS["truncation"].steps[2])
"""One that is begun and not finished always waits for a restart."""

FAILURES = {
    "EIO": Failure(errno.EIO, written=9),
    "EIO-late": Failure(errno.EIO, written=1 << 20, late=True),
    "EIO-for-good": Failure(errno.EIO, times=-1),
    "ENOSPC": Failure(errno.ENOSPC, written=70),
    "ENOSPC-for-good": Failure(errno.ENOSPC, times=-1, written=5),
    "EMFILE": Failure(errno.EMFILE, kind="open"),
}


EVERY = 36
"""The soak tries each of them."""


def play(scenario: Scenario, failure: Failure, passing: int, base: Path, promise: Promise) -> bool:
    """Do the steps, of whose operations `passing` work before the first fails.

    Says whether any failed.
    """
    folder = base.parent
    shutil.copytree(base, folder / "played")
    life = FailingLife(folder / "played", promise=promise)
    if scenario.opened:
        life.open()
    life.begin_failing(failure, passing)
    refused = 0
    for step in scenario.steps:
        if not life.opened and step is not start:
            continue  # It could not be opened.
        if life.attempt(step) is not None and failure.times == 1:
            after_refusal(life, failure, step, again=refused > 0)
            refused += 1
    struck = bool(life.files.failed)
    life.files.heal()
    life.check_after_a_kill(folder / "killed")
    life.release()
    life.check_after_a_kill(folder / "stopped")
    for name in ("played", "killed", "stopped"):
        shutil.rmtree(folder / name)
    return struck


def after_refusal(life: FailingLife, failure: Failure, step: Step, *, again: bool) -> None:
    """Everything works again: what was refused can be had, or waits for a restart and says so.

    `again`: a step before this one had been refused already.
    """
    if step is stop:
        return
    if step is start:
        life.release()
        assert life.attempt(step) is None
        return
    [(kind, name)] = life.files.failed
    life.check_reads()
    failed = life.failed_logs()
    for log in failed:
        with pytest.raises(StorageError, match="restart"):
            log.appender.append(message_set(1))
    lost_sync = kind in ("sync", "sync_directory") and not name.endswith(".tmp")
    if again or step in TRUNCATIONS:
        return
    if step is flush and lost_sync:
        assert failed
    elif failure.error in RETRIABLE_ERRORS and not lost_sync:
        assert not failed
        assert life.attempt(step) is None


def fail_each(scenario: str, failure: str, numbers: Iterator[int], folder: Path) -> None:
    """Play with the failures that `numbers` say, until one comes too late to strike."""
    base = folder / "base"
    before = Life(base)
    SCENARIOS[scenario].prepare(before)
    for passing in numbers:
        promise = before.promises.now
        try:
            if not play(SCENARIOS[scenario], FAILURES[failure], passing, base, promise):
                break
        except Exception as error:
            error.add_note(f"operation {passing} failed")
            raise


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_35_the_nth_operation_fails(
    scenario: str, failure: str, folder: Path, random: Random
) -> None:
    """For one in `EVERY` of the numbers, others with each seed."""
    fail_each(scenario, failure, itertools.count(random.randrange(EVERY), EVERY), folder)


@pytest.mark.soak
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_35_every_operation_fails(scenario: str, failure: str, folder: Path) -> None:
    fail_each(scenario, failure, itertools.count(), folder)
