"""Trying the states that a power cut can leave of a recorded life."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from horolog.testing.power_cuts import CutState, PowerCuts

from .life import Life
from .survival import check_survivor


class BadState(Exception):
    """A state that does not keep what was promised; the cause says what is wrong with it."""


class Enumeration:
    """Makes states in a folder, checks each and counts them."""

    def __init__(
        self,
        random: Random,
        *,
        exhaustive_max: int,
        samples: int,
        check_every: int = 1,
        use_every: int = 1,
    ) -> None:
        """`exhaustive_max` and `samples` as for `PowerCuts`. One state in `check_every` is checked,
        and one in `use_every` of these is used on afterwards.
        """
        self._random = random
        self._exhaustive_max = exhaustive_max
        self._samples = samples
        self._check_every = check_every
        self._use_every = use_every
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

    def crashed(self, life: Life, count: int) -> list[CutState]:
        """Up to `count` states in which `life` may be found after all of it; the first is whole."""
        cuts = PowerCuts(life.recording, self._random, exhaustive_max=0, samples=4 * count)
        states = list(cuts.states_after(len(life.recording.operations)))
        whole = [state for state in states if not state.lost]
        others = [state for state in states if state.lost]
        return whole + self._random.sample(others, min(count - 1, len(others)))

    def survives(self, life: Life, folder: Path) -> None:
        """Raise `BadState` for the first bad state of `life`; `folder` is for the states."""
        for state in self._states_of(life):
            use = self.states % self._use_every == 0
            with explained(life, state), made(state, folder / "state") as path:
                check_survivor(path, life.promises.at(state.operations_done), use=use)

    def _states_of(self, life: Life) -> Iterator[CutState]:
        """The states of `life`, counted. Where a sync is left out, those from then on."""
        cuts = PowerCuts(
            life.recording,
            self._random,
            exhaustive_max=self._exhaustive_max,
            samples=self._samples,
        )
        start = life.recording.left_out_at or 0
        for state in cuts.states(life.promises.changed_at, start):
            if self._check_every > 1 and self._random.randrange(self._check_every):
                continue
            self.states += 1
            yield state
        self._operations += len(life.recording.operations)
        self._exhaustive += cuts.exhaustive
        self._sampled += cuts.sampled


@contextmanager
def made(state: CutState, path: Path) -> Iterator[Path]:
    """The directory of a state at `path`, removed in the end."""
    state.make(path)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def explained(life: Life, state: CutState) -> Iterator[None]:
    """Raise `BadState` for what is raised, with the state in which it was."""
    try:
        yield
    except Exception as error:
        done = state.operations_done
        last = life.recording.operations[done - 1] if done else "the start"
        raise BadState(
            f"the power went after operation {done - 1}: {last}; lost: {'; '.join(state.lost)}"
        ) from error
