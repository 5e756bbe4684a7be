"""Changes in steps: carried out in a thread, finished by somebody else, failing on the way."""

import threading

import pytest

from horolog.protocol.errors import UnknownTopicOrPartition
from horolog.storage.directory.topics import TopicEntry
from horolog.storage.metadata.records import TopicDeleted
from horolog.storage.stepped_change import SteppedChange, Steps
from horolog.testing.directories import DataDirectory


class Traced:
    """A change of two works that writes down what is done, and where."""

    def __init__(self, failing: str = "") -> None:
        self.done: list[tuple[str, int]] = []
        self.failing = failing

    def _do(self, what: str) -> None:
        self.done.append((what, threading.get_ident()))
        if what == self.failing:
            raise OSError(what)

    def steps(self) -> Steps[str]:
        self._do("begin")
        yield lambda: self._do("first")
        self._do("between")
        try:
            yield lambda: self._do("second")
        except OSError:
            yield lambda: self._do("undone")
            raise
        self._do("end")
        return "made"

    def names(self) -> list[str]:
        return [what for what, _ in self.done]


def in_thread(change: SteppedChange[str], step: int) -> None:
    thread = threading.Thread(target=change.run, args=(step,))
    thread.start()
    thread.join()


def test_work_is_done_elsewhere_and_the_rest_here() -> None:
    traced = Traced()
    change = SteppedChange(traced.steps())
    assert not traced.done
    change.begin()
    while not change.done:
        step = change.step
        in_thread(change, step)
        change.advance(step)
    assert change.result() == "made"
    assert traced.names() == ["begin", "first", "between", "second", "end"]
    here = threading.get_ident()
    assert [thread == here for _, thread in traced.done] == [True, False, True, False, True]


def test_somebody_else_may_finish_it() -> None:
    """The one who began it finds every step done, and does none twice."""
    traced = Traced()
    change = SteppedChange(traced.steps())
    change.begin()
    step = change.step
    in_thread(change, step)
    change.finish()
    change.run(step)
    change.advance(step)
    assert change.result() == "made"
    assert traced.names() == ["begin", "first", "between", "second", "end"]


def test_finishing_waits_for_the_work_in_the_thread() -> None:
    entered, leave = threading.Event(), threading.Event()

    def steps() -> Steps[int]:
        def work() -> None:
            entered.set()
            leave.wait(30)

        yield work
        assert leave.is_set()
        return 1

    change = SteppedChange(steps())
    change.begin()
    thread = threading.Thread(target=change.run, args=(change.step,))
    thread.start()
    assert entered.wait(30)
    threading.Timer(0.01, leave.set).start()
    change.finish()
    assert change.result() == 1
    thread.join()


@pytest.mark.parametrize(
    ("failing", "names"),
    [
        ("begin", ["begin"]),
        ("first", ["begin", "first"]),
        ("second", ["begin", "first", "between", "second", "undone"]),
        ("end", ["begin", "first", "between", "second", "end"]),
    ],
)
def test_a_failure_is_the_changes_own(failing: str, names: list[str]) -> None:
    traced = Traced(failing)
    change = SteppedChange(traced.steps())
    change.finish()
    with pytest.raises(OSError, match=failing):
        change.result()
    assert traced.names() == names


def matching(data: DataDirectory, name: str, partitions: int) -> Steps[TopicEntry]:
    entry = TopicEntry(name=name, partitions=partitions, topic_id="x" * 22)
    return data.directory.changes.match(name, entry, lambda *_: None)


def test_changes_of_a_topic_are_made_in_the_order_in_which_they_are_asked_for(
    data: DataDirectory,
) -> None:
    changes = data.open().changes
    first = changes.ask("a", matching(data, "a", 1))
    second = changes.ask("a", matching(data, "a", 2))
    other = changes.ask("b", matching(data, "b", 1))
    first.begin()
    assert "a" not in data.directory.topics()
    changes.settle("a")
    assert (first.result().partitions, second.result().partitions) == (1, 2)
    assert not other.begun
    changes.settle_all()
    assert other.done
    assert {name: entry.partitions for name, entry in data.directory.topics().items()} == {
        "a": 2,
        "b": 1,
    }
    data.close()


def test_a_stop_finishes_what_was_asked_for(data: DataDirectory) -> None:
    changes = data.open().changes
    under_way = changes.ask("a", matching(data, "a", 1))
    under_way.begin()
    changes.ask("b", matching(data, "b", 2))
    data.close()
    assert set(data.topics_file()) == {"a", "b"}


def test_a_deleted_topic_is_gone_before_its_files_are_touched(data: DataDirectory) -> None:
    directory = data.open()
    directory.create_topic("a", 1, {})
    data.append("a", 1)
    told: list[bool] = []
    metadata = directory.metadata
    metadata.gone = lambda *_: told.append("a" in directory.topics())
    metadata.append(TopicDeleted("a", directory.topics()["a"].topic_id))
    metadata.log.flusher.flush()
    deletion = metadata.next_change()
    assert deletion is not None
    deletion.begin()
    assert data.times("a") == [1]
    step = deletion.step
    deletion.run(step)
    deletion.advance(step)
    assert told == [False]
    with pytest.raises(UnknownTopicOrPartition):
        directory.log("a", 0)
    assert "a-0" in data.names()
    data.restart()
    assert not data.directory.topics()
    assert not [name for name in data.names() if name.startswith("a-")]
    data.close()
