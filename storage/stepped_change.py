"""Changes in steps: what may wait for the disk in a thread, what must not in the loop's.

A change is written as a generator. What it yields is work for any thread; what stands between is
done in the thread that owns the data, and sees the work's exception where it yielded. So it reads
as one function, and can be carried out at once or with the loop going on meanwhile.
"""

import threading
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")

Work = Callable[[], None]
Steps = Generator[Work, None, T]


class SteppedChange(Generic[T]):
    """One change under way. Only `run` may be called in another thread.

    Steps are numbered from 0. One that is done is passed over, so that another caller may carry on
    with a change, or finish it, while the one who began it waits for a thread.
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
        """The number of the step whose work is to be run next; -1 before `begin`."""

    @property
    def begun(self) -> bool:
        return self.step >= 0

    @property
    def done(self) -> bool:
        return self.begun and self._work is None

    @property
    def work(self) -> Work | None:
        """What is to be run next; `None` before `begin` and once it is done."""
        return self._work

    def begin(self) -> None:
        """Do what comes before the first work, if that has not been done."""
        if not self.begun:
            self._go_on()

    def run(self, step: int) -> None:
        """Do the work of `step`. What it raises is for the change, not for the caller."""
        with self._lock:
            if self._ran == step and self._work is not None:
                try:
                    self._work()
                except Exception as error:
                    self._failure = error
                self._ran += 1

    def advance(self, step: int) -> None:
        """Take in the work of `step`, which has been run."""
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
            del failure  # Its traceback has this frame: the two would be left to the collector.

    def finish(self) -> None:
        """Do all that is left, here and now."""
        self.begin()
        while not self.done:
            step = self.step
            self.run(step)
            self.advance(step)

    def result(self) -> T:
        """What the change returned, once it is done. Raises what it raised."""
        if self._failure is not None:
            raise self._failure
        return self._outcome[0]
