"""What every test may use: both event loops, outside programs, replayable randomness."""

import asyncio
import gc
import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis
import pytest
import uvloop
from _pytest.outcomes import Failed
from xdist.scheduler import LoadScopeScheduling

pytest.register_assert_rewrite("horolog.testing", "horolog.tests")
pytest_plugins = [
    "horolog.testing.plugin",
    "horolog.tests.apache",
    "horolog.tests.fewer_messages",
    "horolog.tests.forked_brokers",
    "horolog.tests.in_process",
    "horolog.tests.rewritten",
]

_NEED_JAVA = {"spark", "apache"}

_JAVA_MODULES = frozenset(
    {
        "bench/test_apache_kafka.py",
        "clusters/test_groups.py",
        "clusters/test_members.py",
        "clusters/test_messages.py",
        "clusters/test_moving.py",
        "clusters/test_sets.py",
        "clusters/test_topics.py",
        "clusters/test_windows.py",
        "elections/test_spark.py",
        "pipeline/connect/test_connect.py",
        "pipeline/jobs/test_failover_check.py",
        "pipeline/test_guarded.py",
        "pipeline/test_guide.py",
        "pipeline/test_jobs_on_spark.py",
        "pipeline/test_on_apache_kafka.py",
        "pipeline/test_progress.py",
        "pipeline/test_replicas.py",
        "pipeline/test_scale_page.py",
        "pipeline/test_sink_limits.py",
        "pipeline/test_spark_batch.py",
        "pipeline/test_spark_made_again.py",
        "pipeline/test_spark_page.py",
        "pipeline/test_spark_stream.py",
        "rights/test_apache_kafka_broker.py",
        "secure_clients/test_mechanisms.py",
        "secure_clients/test_refusals.py",
        "secure_clients/test_sessions.py",
        "secure_clients/test_spark.py",
    }
)
"""They share the one Spark and the one Apache Kafka of a run, so one process has them all. They
are named here because the process that shares out the tests does not know their fixtures."""

_BROWSER_MODULES = frozenset(
    f"page/test_{name}.py" for name in ("bars", "hidden", "login", "members", "page")
)
"""They take turns too: a browser has several processes, which draw without a graphics card."""

_FIRST = (
    *(
        "clients",
        "ecosystem",
        "elections",
        "replicas",
        "faults",
        "pages",
        "page",
        "cli",
        "guard",
        "bench",
    ),
    *("monitoring", "properties", "records"),
)
"""Folders with modules that wait for other programs, or take long themselves: they go first, and
many short ones last, so that all processes of a run end at about the same time."""

_LONG = frozenset({"soak", "secure_clients", "elections", "ecosystem"})
"""Marks of tests that run only where `-m` names them."""

_FIRST_USE_S = 900
"""What the first test of Apache Kafka may take: Maven fetches it."""

_LEFT_OPEN_MAX = 50
"""Files that a module may leave open, such as those of a broker that others go on with."""

_JAVA_PROGRAMS = pytest.StashKey[ExitStack]()

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

hypothesis.settings.register_profile("default", deadline=None, print_blob=True, max_examples=20)
hypothesis.settings.register_profile(
    "soak", deadline=None, print_blob=True, max_examples=5000, stateful_step_count=200
)
hypothesis.settings.load_profile("default")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of the random tests, so that a failing run can name it; let Ctrl-C work."""
    if config.getoption("--hypothesis-seed") is None:
        drawn = os.environ.get("HOROLOG_TEST_SEED") or str(random.SystemRandom().randrange(2**32))
        config.option.hypothesis_seed = getattr(config, "workerinput", {}).get("seed", drawn)
    # What a shell starts in the background ignores Ctrl-C, and so would the programs under test.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All processes of a run have the seed that it names."""
    node.workerinput["seed"] = node.config.getoption("--hypothesis-seed")


class _Numbered(list[str]):
    """The tests of a process, whose numbers are found at once."""

    def __init__(self, tests: Iterable[str]) -> None:
        super().__init__(tests)
        self._numbers = {test: number for number, test in enumerate(self)}

    def index(self, test: str, *_: Any) -> int:
        return self._numbers[test]


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives whole modules to the processes of a run: all with Java to one, all browsers to one."""

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = _Numbered(collection)

    def _assign_work_unit(self, node: Any) -> None:
        # xdist counts the tests left of all modules that the process ever had, after each test.
        modules = self.assigned_work[node]
        for module in [name for name, done in modules.items() if all(done.values())]:
            del modules[module]
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        if module in _JAVA_MODULES:
            return "java"
        return "browser" if module in _BROWSER_MODULES else module


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling:
    """How `pytest -n` shares out the tests."""
    return _Scheduling(config, log)


class _TimedOut(Failed, SystemExit):
    """Failure of a test that took too long. An event loop ends with `SystemExit`; uvloop only
    reports the other exceptions that a signal raises while it waits, and goes on waiting."""


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer() -> Generator[None, Any, Any]:
    """Let the timer of a test raise `_TimedOut`."""
    result = yield
    fail = signal.getsignal(signal.SIGALRM)

    def time_out(number: int, frame: FrameType | None) -> None:
        assert callable(fail)
        try:
            fail(number, frame)
        except Failed as failure:
            raise _TimedOut(failure.msg) from None

    signal.signal(signal.SIGALRM, time_out)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        seed = terminalreporter.config.getoption("--hypothesis-seed")
        terminalreporter.write_line(f"random tests ran with --hypothesis-seed={seed}")
    for report in terminalreporter.stats.get("passed", []):
        for key, text in report.user_properties if report.when == "call" else ():
            if key == "measured":
                terminalreporter.write_line(text)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let the garbage collector pass over the modules and the thousands of tests, which stay until
    the end. To look through them took a quarter of the collection, and a twentieth of the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long tests out unless `-m` names their mark; group and order the others."""
    # Of all that there are: a module that only `make elections` runs is noticed by each run.
    for item in items:
        if not _NEED_JAVA.isdisjoint(getattr(item, "fixturenames", ())):
            if _module(item) not in _JAVA_MODULES:
                raise pytest.UsageError(f"add {_module(item)} to _JAVA_MODULES in conftest.py")
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(_FIRST_USE_S))
    left_out = _LONG - set(re.findall(r"\w+", config.option.markexpr))
    long = [item for item in items if any(mark.name in left_out for mark in item.iter_markers())]
    if long:
        config.hook.pytest_deselected(items=long)
        ids = {id(item) for item in long}
        items[:] = [item for item in items if id(item) not in ids]
    items.sort(key=_turn)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End Spark and Kafka behind the last test that needs them."""
    programs = item.config.stash.get(_JAVA_PROGRAMS, None)
    if programs is not None and (nextitem is None or _module(nextitem) not in _JAVA_MODULES):
        programs.close()


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _turn(item: pytest.Item) -> int:
    """What takes longest goes first, so that no process ends long after the others."""
    for turn, modules in enumerate((_JAVA_MODULES, _BROWSER_MODULES)):
        if _module(item) in modules:
            return turn - 2
    folder = item.nodeid.partition("/")[0]
    return _FIRST.index(folder) if folder in _FIRST else len(_FIRST)


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """uvloop, which the broker runs on; with the marker `both_loops` asyncio's own as well."""
    factories: dict[str, LoopFactory] = {"uvloop": uvloop.new_event_loop}
    if item.get_closest_marker("both_loops"):
        factories["asyncio"] = asyncio.new_event_loop
    return factories


@pytest.fixture(scope="session")
def until_java_is_done(request: pytest.FixtureRequest) -> ExitStack:
    """What is entered here ends with the last test of `_JAVA_MODULES`: Spark and Kafka take a third
    of a processor even without requests."""
    return request.config.stash.setdefault(_JAVA_PROGRAMS, ExitStack())


@pytest.fixture
def require_program() -> Callable[[str], str]:
    """`require_program("kcat")` is its path; without it the test skips by name.

    With `HOROLOG_REQUIRE=all` a missing program is a failure: then nothing is skipped unseen.
    """

    def require(name: str) -> str:
        path = shutil.which(name)
        if path is None and os.environ.get("HOROLOG_REQUIRE") == "all":
            pytest.fail(f"{name} is not installed, and HOROLOG_REQUIRE=all asks for it")
        if path is None:
            pytest.skip(f"{name} is not installed")
        return path

    return require


@pytest.fixture
def fast_path() -> None:
    """For tests of sets that are appended together, which only the compiled kernel does. Without it
    they skip, or fail under `HOROLOG_REQUIRE=all`."""
    from horolog.compiled import kernel_form

    if kernel_form() != "compiled":
        missing = pytest.fail if os.environ.get("HOROLOG_REQUIRE") == "all" else pytest.skip
        missing("the kernel is not compiled; make setup does it where a C compiler is")


@pytest.fixture(autouse=True, scope="session")
def no_settings_from_outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Settings of the shell that runs the tests do not reach the brokers that they start, nor
    profiles of its user the commands. Both buffer their output, as at a user's."""
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("PYTHONUNBUFFERED", raising=False)
        environment.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "no-profiles"))
        for variable in [name for name in os.environ if name.startswith("HOROLOG_")]:
            if variable not in ("HOROLOG_REQUIRE", "HOROLOG_KERNEL"):
                environment.delenv(variable)
        yield


@pytest.fixture(autouse=True, scope="module")
def few_files_left_open() -> Iterator[None]:
    """A process has hundreds of modules before it, and `select` takes no file above 1023."""
    before = _open_files()
    yield
    left = _open_files() - before
    assert len(left) <= _LEFT_OPEN_MAX, f"{len(left)} files are open still, such as {min(left)}"


def _open_files() -> set[str]:
    """The numbers of the files that are open in this process, with their names."""
    found = set()
    for number in Path("/dev/fd").iterdir():
        with suppress(OSError):
            found.add(f"{number.name}: {number.readlink()}")
    return found
