"""What every test may use: both event loops, outside programs, replayable randomness."""

import asyncio
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import uvloop
from xdist.scheduler import LoadScopeScheduling

from horolog.bench.apache_kafka import ApacheKafka, Unavailable, apache_kafka, class_path
from horolog.testing.program import commands_run_by
from horolog.tests.in_process import run_in_process

_FIRST = ("pipeline", "clusters", "secure_clients", "clients", "faults", "pages", "cli", "bench")

_TOGETHER = ("pipeline", "clusters", "secure_clients")
"""Their tests run in one process: a second Spark, or a second cluster of Kafka brokers, would take
longer to come up than it saves, and from everything else beside it."""

_LEFT_OPEN_MAX = 50
"""Files that a module may leave open, such as those of a broker that others go on with."""

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

hypothesis.settings.register_profile("default", deadline=None, print_blob=True, max_examples=50)
hypothesis.settings.register_profile(
    "soak", deadline=None, print_blob=True, max_examples=5000, stateful_step_count=200
)
hypothesis.settings.load_profile("default")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed of the random tests, so that a failing run can name it; let Ctrl-C work."""
    if config.getoption("--hypothesis-seed") is None:
        drawn = str(random.SystemRandom().randrange(2**32))
        config.option.hypothesis_seed = getattr(config, "workerinput", {}).get("seed", drawn)
    # What a shell starts in the background ignores Ctrl-C, and so would the programs under test.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All processes of a run have the seed that it names."""
    node.workerinput["seed"] = node.config.getoption("--hypothesis-seed")


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Whole modules to the processes of a run, or whole folders."""

    def _split_scope(self, nodeid: str) -> str:
        folder = nodeid.partition("/")[0]
        scope: str = folder if folder in _TOGETHER else super()._split_scope(nodeid)
        return scope


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling:
    """How `pytest -n` shares out the tests."""
    return _Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        seed = terminalreporter.config.getoption("--hypothesis-seed")
        terminalreporter.write_line(f"random tests ran with --hypothesis-seed={seed}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long tests out unless `-m` names their mark."""
    for mark in ("soak", "secure_clients", "elections"):
        if mark not in config.option.markexpr:
            long = [item for item in items if item.get_closest_marker(mark)]
            config.hook.pytest_deselected(items=long)
            items[:] = [item for item in items if item not in long]
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """What waits longest for other programs goes first, so that no process ends long after the
    other."""
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    return _FIRST.index(folder) if folder in _FIRST else len(_FIRST)


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """uvloop, which the broker runs on; with the marker `both_loops` asyncio's own as well."""
    factories: dict[str, LoopFactory] = {"uvloop": uvloop.new_event_loop}
    if item.get_closest_marker("both_loops"):
        factories["asyncio"] = asyncio.new_event_loop
    return factories


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


@pytest.fixture(scope="session")
def require_apache_kafka() -> None:
    """The test needs `horolog.bench.apache_kafka`; where Kafka cannot be had it skips by name.

    The first use fetches it, so such a test needs a `timeout` mark of a quarter of an hour.
    """
    try:
        class_path()
    except Unavailable as error:
        if os.environ.get("HOROLOG_REQUIRE") == "all":
            pytest.fail(f"{error}, and HOROLOG_REQUIRE=all asks for it")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def start_apache(
    require_apache_kafka: None, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], AbstractContextManager[ApacheKafka]]:
    """`with start_apache() as running` is Apache Kafka, three brokers.

    It takes ten seconds to start, and a tenth of a processor while nobody uses it: a fixture
    `apache` keeps one for a module or a package, whose tests take topics of their own.
    """
    settings = {"default.replication.factor": "3", "auto.create.topics.enable": "true"}

    def start() -> AbstractContextManager[ApacheKafka]:
        folder = tmp_path_factory.mktemp("apache-kafka")
        return apache_kafka(folder, brokers=3, settings=settings)

    return start


@pytest.fixture
def cluster(apache: ApacheKafka) -> str:
    """The address of the cluster."""
    return f"kafka://{apache.bootstrap}"


@pytest.fixture(scope="session", autouse=True)
def commands_in_this_process() -> Iterator[None]:
    """Commands run in this process, which costs a hundredth of a process of their own. What tests
    the process itself takes `Program(own_process=True)`, or `running`."""
    with commands_run_by(run_in_process):
        yield


@pytest.fixture(autouse=True)
def no_settings_from_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Settings of the shell that runs the tests do not reach the brokers that they start, nor
    profiles of its user the commands. Both buffer their output, as at a user's."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "no-profiles"))
    for variable in [name for name in os.environ if name.startswith("HOROLOG_")]:
        if variable not in ("HOROLOG_REQUIRE", "HOROLOG_KERNEL"):
            monkeypatch.delenv(variable)


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
