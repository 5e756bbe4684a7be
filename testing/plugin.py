"""The pytest plugin: fixtures with a broker, or a cluster, in the process of the tests.

Every pytest run loads it where Horolog is installed, so it imports nothing that only a test with a
broker needs.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from .broker import BrokerThread
    from .cluster import BrokerCluster
    from .faults import ArmedFaults, BrokerFault
    from .snapshots import BrokerSnapshot

_BROKER: "pytest.StashKey[BrokerThread]" = pytest.StashKey()
_BEGINNING: "pytest.StashKey[BrokerSnapshot]" = pytest.StashKey()
"""The state of the broker when it was started."""
_TESTING: "pytest.StashKey[bool]" = pytest.StashKey()
"""Whether a test has the broker: what is stored meanwhile goes with it."""
_STRETCHES: "pytest.StashKey[list[_Stretch]]" = pytest.StashKey()
"""The module whose tests are running, and the class."""
_NAMED: "pytest.StashKey[Mapping[str, _NamedFixtures]]" = pytest.StashKey()
"""What the tests of each module and class name, by node id."""

_FixtureDefs = Mapping[str, Sequence[pytest.FixtureDef[Any]]]
"""The fixtures that tests see, by name, the nearest one last."""

_STAYING_SCOPES: Final = ("session", "package")
_TAKEN_BACK_SCOPES: Final = ("module", "class")


class _Stretch:
    """The tests of a module or a class, after which the broker is put back."""

    def __init__(self, before: "BrokerSnapshot | None", faults: "ArmedFaults | None") -> None:
        self.before = before
        """The state to put it back into; `None`: that of its start."""
        self.faults = faults
        """The faults that waited then; `None`: none."""
        self.later_faults: dict[BrokerFault, BrokerFault] = {}
        """Those that fixtures of the session have armed since, as they were then."""
        self.stays = False
        """Whether it is left as it is: a fixture of the session has stored something on top of what
        others of this stretch had stored, and the two cannot be separated."""


class _NamedFixtures:
    """Fixtures that use the broker and that tests of a module or a class name."""

    def __init__(self) -> None:
        self.staying: dict[str, None] = {}
        """Those of the session, in order, without parameters."""
        self.taken_back: set[str] = set()
        """Those of the module or the class."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Import, before the first test, what some test needs, so that its import time counts for no
    test. Tests that were deselected need nothing."""
    items = session.items
    needed = {name for item in items for name in getattr(item, "fixturenames", ())}
    if "horolog_broker" in needed:
        from . import broker  # noqa: F401

        named: dict[str, _NamedFixtures] = {}
        for item in items:
            for node in (item.getparent(pytest.Module), item.getparent(pytest.Class)):
                if node is not None:
                    _add_fixtures(item, named.setdefault(node.nodeid, _NamedFixtures()))
        session.stash[_NAMED] = named
    if "horolog_cluster" in needed:
        from . import cluster  # noqa: F401


@pytest.fixture
def horolog_settings() -> Mapping[str, object]:
    """Return settings of the broker and defaults for its topics. Override this fixture to set some.

    For example `{"retention.ms": 60_000, "http.listen": "127.0.0.1:0"}`. They hold during the test;
    fixtures of a wider scope see the broker without them.
    """
    return {}


@pytest.fixture(scope="session")
def horolog_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[BrokerThread]":
    """A broker on a free port, for all tests of the run, with a clock that tests move.

    Each test finds what fixtures of a wider scope have made, and nothing of other tests. Clients
    connect to `.address`, Kafka's clients to `.kafka_address`. `.clock` has `step(seconds)`,
    `set(time)`, `freeze()`, `run(speed)` and `now_ms()`; `.faults` injects faults; `.topic(name)`
    shows what is stored; `.snapshot()` and `.restore()` go back to an earlier state.
    """
    from .broker import BrokerThread

    settings = {"listen": "127.0.0.1:0", "kafka.listen": "127.0.0.1:0"}
    with BrokerThread(tmp_path_factory.mktemp("horolog") / "data", settings) as broker:
        stash = request.session.stash
        stash[_BROKER], stash[_BEGINNING] = broker, broker.snapshot()
        yield broker
    del stash[_BROKER]


@pytest.fixture(scope="session")
def kafka_bootstrap(horolog_broker: "BrokerThread") -> str:
    """The address of `horolog_broker` for Kafka's clients, `HOST:PORT`: their
    `bootstrap.servers`."""
    address = horolog_broker.kafka_address
    assert address is not None
    return address


@pytest.fixture
def horolog_cluster(
    horolog_settings: Mapping[str, object], tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[BrokerCluster]":
    """A leader and two followers, in sync, of this test alone, with one clock.

    Clients connect to `.address`, Kafka's clients to `.kafka_bootstrap`. `.stop_leader()` stops the
    leader, and `.promote()` has a follower lead.
    """
    from .cluster import BrokerCluster

    with BrokerCluster(tmp_path_factory.mktemp("horolog"), horolog_settings) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Notice what a fixture of the session stores while a module or a class runs: it stays.

    Before the first fixture of a module or a class stores something, have those of the session that
    its tests name do so.
    """
    session = request.session
    if fixturedef.scope not in _STAYING_SCOPES:
        named = session.stash.get(_NAMED, {}).get(request.node.nodeid)
        if named is not None and fixturedef.argname in named.taken_back:
            for name in named.staying:
                _set_up(name, request)
        return (yield)
    if session.stash.get(_TESTING, False):
        return (yield)
    known = _known_fixtures(getattr(request, "_pyfuncitem", None))
    if not any(_uses_broker(each, known, or_any=True) for each in fixturedef.argnames):
        return (yield)  # What changes meanwhile is by others, such as a thread of the module.
    broker = _running_broker(session)
    before = None if broker is None else broker.snapshot()
    armed: Sequence[BrokerFault] = () if broker is None else broker.faults.waiting
    result = yield
    if (broker := _running_broker(session)) is not None:
        _keep_stored(session, broker, before or session.stash[_BEGINNING], armed)
    return result


def _keep_stored(
    session: pytest.Session,
    broker: "BrokerThread",
    before: "BrokerSnapshot",
    armed: "Sequence[BrokerFault]",
) -> None:
    """Keep, after the modules and classes that are running, what a fixture of the session has
    stored since `before`, and the faults that are not among `armed`."""
    after = broker.snapshot()
    stretches = session.stash.get(_STRETCHES, ())
    for stretch in stretches if after.differs(before) else ():
        if (stretch.before or session.stash[_BEGINNING]) is before:
            stretch.before = after
        else:
            stretch.stays = True
    for fault in broker.faults.waiting:
        for stretch in stretches if fault not in armed else ():
            stretch.later_faults.setdefault(fault, replace(fault))


def _set_up(name: str, request: pytest.FixtureRequest) -> None:
    """Set up a fixture of the session. If it fails, only the tests that name it fail: what it
    raises is raised again in them."""
    try:
        request.getfixturevalue(name)
    except (KeyboardInterrupt, pytest.exit.Exception):
        raise
    except BaseException:  # `pytest.fail` and `pytest.skip` raise no `Exception`.
        return


@pytest.fixture(autouse=True, scope="module")
def _horolog_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """Take back, after the tests of a module, what its fixtures have stored."""
    with _taken_back(request.session):
        yield


@pytest.fixture(autouse=True, scope="class")
def _horolog_class(request: pytest.FixtureRequest) -> Iterator[None]:
    """Take back, after the tests of a class, what its fixtures have stored."""
    if request.cls is None:
        yield
        return
    with _taken_back(request.session):
        yield


@pytest.fixture(autouse=True)
def _horolog_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Put the broker back, after a test, into the state that fixtures of a wider scope have
    made."""
    if "horolog_broker" not in request.fixturenames:
        with _put_back_if_used(request), _testing(request.session):
            yield
        return
    settings = request.getfixturevalue("horolog_settings")
    broker: BrokerThread = request.getfixturevalue("horolog_broker")
    with broker.borrowed(settings), _testing(request.session):
        if "kafka_bootstrap" in request.fixturenames:
            _check_port(broker, request.getfixturevalue("kafka_bootstrap"))
        yield


@contextmanager
def _testing(session: pytest.Session) -> Iterator[None]:
    session.stash[_TESTING] = True
    try:
        yield
    finally:
        session.stash[_TESTING] = False


def _add_fixtures(item: pytest.Item, named: _NamedFixtures) -> None:
    """Add the fixtures that a test names, itself or through others, and that use the broker."""
    known = _known_fixtures(item)
    for name in known:
        if not _uses_broker(name, known):
            continue
        scope = known[name][-1].scope
        if scope in _TAKEN_BACK_SCOPES:
            named.taken_back.add(name)
        elif scope in _STAYING_SCOPES and not known[name][-1].params:
            named.staying[name] = None


def _known_fixtures(item: pytest.Item | None) -> _FixtureDefs:
    found: _FixtureDefs = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    return found


def _uses_broker(name: str, known: _FixtureDefs, level: int = -1, *, or_any: bool = False) -> bool:
    """Whether a fixture names the broker, itself or through others. With `or_any`, also if it may
    take any fixture, by `request`."""
    if name == "horolog_broker" or (or_any and name == "request"):
        return True
    return len(known.get(name, ())) >= -level and any(
        # A fixture that names itself extends that of a wider place.
        _uses_broker(each, known, level - 1 if each == name else -1, or_any=or_any)
        for each in known[name][level].argnames
    )


def _running_broker(session: pytest.Session) -> "BrokerThread | None":
    """Return the broker of the session if it was started and is running."""
    broker = session.stash.get(_BROKER, None)
    return broker if broker is not None and broker.is_running else None


def _check_port(broker: "BrokerThread", bootstrap: str) -> None:
    """Fail a test whose settings have moved the port that `kafka_bootstrap` names."""
    now = broker.kafka_address
    if now is None or now.rpartition(":")[2] != bootstrap.rpartition(":")[2]:
        pytest.fail(
            f"kafka_bootstrap is {bootstrap} during the whole run, and kafka.listen of "
            f"horolog_settings is {broker.settings['kafka.listen']!r}: leave that setting out, or "
            "give it the port 0, or use horolog_broker.kafka_address instead of kafka_bootstrap",
            pytrace=False,
        )


@contextmanager
def _put_back_if_used(request: pytest.FixtureRequest) -> Iterator[None]:
    """Put the broker back after a test that took it with `getfixturevalue`."""
    broker = _running_broker(request.session)
    before = None if broker is None else broker.snapshot()
    faults = None if broker is None else broker.faults.armed()
    yield
    stash = request.session.stash
    if "horolog_broker" in request.fixturenames and _BROKER in stash:
        try:
            _put_faults_back(stash[_BROKER], faults)
        finally:
            stash[_BROKER].restore(before or stash[_BEGINNING])


@contextmanager
def _taken_back(session: pytest.Session) -> Iterator[None]:
    """Put the broker of the session back, and start it if it was stopped, unless a fixture of the
    session has stored something on top."""
    broker = _running_broker(session)
    if broker is None:
        stretch = _Stretch(None, None)
    else:
        stretch = _Stretch(broker.snapshot(), broker.faults.armed())
    stretches = session.stash.setdefault(_STRETCHES, [])
    stretches.append(stretch)
    try:
        yield
    finally:
        stretches.remove(stretch)
        broker = session.stash.get(_BROKER, None)
        if broker is not None:
            try:
                _put_faults_back(broker, stretch.faults, stretch.later_faults.values())
            finally:
                wanted = stretch.before or session.stash[_BEGINNING]
                changed = not broker.is_running or broker.snapshot() is not wanted
                if changed and not stretch.stays:
                    broker.restore(wanted)


def _put_faults_back(
    broker: "BrokerThread", before: "ArmedFaults | None", later: "Iterable[BrokerFault]" = ()
) -> None:
    """Have those faults wait that waited before, and `later` ones."""
    from .faults import ArmedFaults

    before = before or ArmedFaults()
    broker.faults.put_back(ArmedFaults((*before.waiting, *later), before.injected))
