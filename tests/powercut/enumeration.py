"""Trying the states that a power cut can leave of a recorded life."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from horolog.testing.power_cuts import PowerCuts, State

from .life import Life
from .survival import check_survivor


class Enumeration:
    """Makes states in a folder, checks each and counts them."""

    def __init__(self, random: Random, *, exhaustive_max: int, samples: int) -> None:
        self._random = random
        self._exhaustive_max = exhaustive_max
        self._samples = samples
        self.states = 0
        self._operations = 0
        self._exhaustive = 0
        self._sampled = 0

    @property
    def summary(self) -> str:
        return (
            f"{self.states} states of {self._operations} operations, all that there are after "
            f"{self._exhaustive} of them and a sample after {self._sampled}"
        )

    def crashed(self, life: Life, count: int) -> list[State]:
        """Up to `count` of the states in which `life` may be found after all of it."""
        cuts = PowerCuts(life.recording, self._random, exhaustive_max=0, samples=4 * count)
        states = list(cuts.states_after(len(life.recording.operations)))
        return self._random.sample(states, min(count, len(states)))

    def survives(self, life: Life, folder: Path) -> None:
        """Raise what is wrong in the first bad state of `life`; `folder` is for the states."""
        for state in self.states_of(life):
            with explained(life, state), made(state, folder) as path:
                check_survivor(path, life.promises.at(state.operations_done))

    def states_of(self, life: Life) -> Iterator[State]:
        """The states of `life`, counted."""
        cuts = PowerCuts(
            life.recording,
            self._random,
            exhaustive_max=self._exhaustive_max,
            samples=self._samples,
        )
        for state in cuts.states(life.promises.changed_at):
            self.states += 1
            yield state
        self._operations += len(life.recording.operations)
        self._exhaustive += cuts.exhaustive
        self._sampled += cuts.sampled


@contextmanager
def made(state: State, folder: Path) -> Iterator[Path]:
    """The directory of a state, removed in the end."""
    path = folder / "state"
    state.make(path)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def explained(life: Life, state: State) -> Iterator[None]:
    """Say of what is raised in which state it was."""
    try:
        yield
    except Exception as error:
        done = state.operations_done
        last = life.recording.operations[done - 1] if done else "the start"
        error.add_note(f"the power went after operation {done - 1}: {last}")
        error.add_note("lost: " + "; ".join(state.lost))
        raise
