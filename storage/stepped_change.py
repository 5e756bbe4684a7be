"""Changes in steps: work that may wait for the disk runs in a thread, the rest in the event loop's.

A change is a generator. It yields work for any thread. The code in between runs in the thread that
owns the data, and gets an exception of the work at the `yield`. So a change reads as one function,
and can be carried out at once or while the event loop continues.
"""

import threading
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")

Work = Callable[[], None]
Steps = Generator[Work, None, T]


class SteppedChange(Generic[T]):
    """One change in progress. Only `run` may be called in another thread.

    Steps are numbered from 0. Calls for a finished step are ignored, so that another caller can
    continue or finish a change while its first caller waits for a thread.
    """

    def __init__(self, steps: Steps[T]) -> None:
        """Nothing is done before `begin`."""
        self._steps = steps
        self._lock = threading.Lock()
        self._ran = 0
        self._failure: BaseException | None = None
        self._outcome: list[T] = []
        self._work: Work | None = None
        self.step = -1
        """Number of the step whose work runs next; -1 before `begin`."""

    @property
    def begun(self) -> bool:
        return self.step >= 0

    @property
    def done(self) -> bool:
        return self.begun and self._work is None

    @property
    def work(self) -> Work | None:
        """The work to run next; `None` before `begin` and after the last step."""
        return self._work

    def begin(self) -> None:
        """Run the code before the first work, unless it ran already."""
        if not self.begun:
            self._go_on()

    def run(self, step: int) -> None:
        """Run the work of `step`. Its exception is passed to the change, not to the caller."""
        with self._lock:
            if self._ran == step and self._work is not None:
                try:
                    self._work()
                except Exception as error:
                    self._failure = error
                self._ran += 1

    def advance(self, step: int) -> None:
        """Continue after the work of `step`, which was run."""
        if self.step == step and not self.done:
            self._go_on()

    def _go_on(self) -> None:
        failure, self._failure = self._failure, None
        self.step += 1
        try:
            self._work = next(self._steps) if failure is None else self._steps.throw(failure)
        except StopIteration as end:
            self._work = None
            self._outcome.append(end.value)
        except BaseException as error:
            self._work = None
            self._failure = error
        finally:
            del failure  # Its traceback has this frame: only the garbage collector would free both.

    def finish(self) -> None:
        """Do all remaining steps now."""
        self.begin()
        while not self.done:
            step = self.step
            self.run(step)
            self.advance(step)

    def result(self) -> T:
        """Return the result of a finished change, or raise its exception."""
        if self._failure is not None:
            raise self._failure
        return self._outcome[0]
