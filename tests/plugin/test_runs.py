"""The plugin in pytest runs of other projects: loaded by itself, cheap, and without warnings."""

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from horolog import blocking
from horolog.testing.broker import BrokerThread
from horolog.testing.program import Program

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
WRITTEN = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)

ELSEWHERE = ("faststream", "quixstreams")
"""What is not installed here: `tests/ecosystem` has the examples with it."""

FIRST = re.findall(r"<<'END'\n(.*?)^END$", PAGE.read_text(), re.DOTALL | re.MULTILINE)[0]
"""The example that the page begins with."""

COMMANDS = re.findall(r"^\$ horolog (.*)$", PAGE.read_text(), re.MULTILINE)

EXAMPLES = [each for each in WRITTEN if not any(f"from {name}" in each for name in ELSEWHERE)]

SYNCHRONOUS = """
import socket

def test_it_listens(horolog_broker):
    host, _, port = horolog_broker.address.partition(":")
    socket.create_connection((host, int(port))).close()

def test_another_has_another_directory(horolog_broker):
    assert not list(horolog_broker.data_dir.glob("*-0"))
"""

ISOLATION = """
import pytest
from horolog import blocking

@pytest.fixture(scope="module")
def filled(horolog_broker):
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("kept", b"value", timestamp_ms=horolog_broker.clock.now_ms())

@pytest.fixture
def topics(horolog_broker):
    def find():
        with blocking.Admin(horolog_broker.address) as admin:
            return list(admin.list_topics())
    return find

def test_what_a_wider_fixture_made_is_there(filled, horolog_broker, topics):
    assert topics() == ["kept"]
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("new", b"value")
        producer.send("kept", b"value")
    horolog_broker.faults.drop_connection(times=None)
    horolog_broker.clock.step(30 * 24 * 3600)
    assert horolog_broker.topic("kept").values() == []

def test_what_a_test_made_is_gone(filled, horolog_broker, topics, kafka_bootstrap):
    assert topics() == ["kept"]
    assert horolog_broker.topic("kept").values() == [b"value"]
    assert horolog_broker.faults.injected == []
    assert horolog_broker.kafka_address == kafka_bootstrap
    horolog_broker.stop()

class TestWithSettings:
    @pytest.fixture
    def horolog_settings(self):
        return {"auto.create.topics.enable": False, "kafka.listen": "127.0.0.1:0"}

    def test_settings_hold_in_their_class(self, horolog_broker, topics, kafka_bootstrap):
        assert horolog_broker.kafka_address == kafka_bootstrap
        with pytest.raises(Exception, match="auto.create"):
            with blocking.Producer(horolog_broker.address) as producer:
                producer.send("new", b"value")

def test_settings_hold_nowhere_else(filled, horolog_broker, topics):
    assert topics() == ["kept"]
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("new", b"value")

def test_a_test_without_the_broker(tmp_path):
    assert not list(tmp_path.iterdir())

def test_the_leader_is_stopped(filled, horolog_broker):
    horolog_broker.faults.stop_leader()

def test_the_leader_was_started_again(filled, horolog_broker, topics, kafka_bootstrap):
    assert horolog_broker.kafka_address == kafka_bootstrap
    assert topics() == ["kept"]

def test_a_broker_that_is_taken_by_its_name(request):
    broker = request.getfixturevalue("horolog_broker")
    with blocking.Producer(broker.address) as producer:
        producer.send("new", b"value")
    broker.faults.drop_connection(times=None)

def test_it_was_put_back_too(horolog_broker, topics):
    assert topics() == ["kept"]
"""

OF_SESSION = """
import pytest
from horolog import blocking

@pytest.fixture(scope="session")
def of_session(horolog_broker):
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("session", b"value")
"""

LATE = """
import pytest
from horolog import blocking

@pytest.fixture(scope="class")
def of_class(horolog_broker):
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("class", b"value")

@pytest.fixture
def topics(horolog_broker):
    def find():
        with blocking.Admin(horolog_broker.address) as admin:
            return sorted(admin.list_topics())
    return find

class TestOfClass:
    def test_its_own(self, of_class, topics):
        assert topics() == ["class"]

    def test_again(self, topics):
        assert topics() == ["class"]

def test_what_a_class_made_is_gone(topics):
    assert topics() == []

def test_of_the_session(of_session, topics):
    assert topics() == ["session"]
"""

STOPPED = """
import pytest
from horolog import blocking

@pytest.fixture(scope="module")
def stopping(horolog_broker):
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("module", b"value")
    yield
    horolog_broker.stop()

def test_it_is_stopped_after_the_module(stopping, horolog_broker):
    assert horolog_broker.topic("module").values() == [b"value"]
"""

LATER = """
import pytest
from horolog import blocking

@pytest.fixture(scope="module")
def of_module(horolog_broker):
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("module", b"value")

@pytest.fixture(scope="session")
def first_of_session(horolog_broker):
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("first", b"value")

@pytest.fixture(scope="session")
def named_by_another(first_of_session):
    pass

@pytest.fixture(scope="session")
def absent(horolog_broker):
    pytest.skip("it is not here")

@pytest.fixture
def topics(horolog_broker):
    def find():
        with blocking.Admin(horolog_broker.address) as admin:
            return sorted(admin.list_topics())
    return find

def test_what_a_module_made_is_gone_though_it_stopped_the_broker(topics):
    assert topics() == ["session"]

def test_the_session_comes_before_the_module(of_module, topics):
    assert topics() == ["first", "module", "session"]

def test_a_fixture_of_the_session_that_comes_later(of_module, named_by_another, topics):
    assert topics() == ["first", "module", "session"]

def test_one_that_is_absent_concerns_no_other_test(absent):
    assert False
"""

AFTER_LATER = """
from horolog import blocking

def test_the_module_is_gone_and_the_session_stays(horolog_broker):
    with blocking.Admin(horolog_broker.address) as admin:
        assert sorted(admin.list_topics()) == ["first", "session"]
"""

LAST = """
from horolog import blocking

def test_what_the_session_made_stays(horolog_broker, of_session):
    with blocking.Admin(horolog_broker.address) as admin:
        assert sorted(admin.list_topics()) == ["session"]
"""

CHANGING = """
import pytest
from horolog import blocking

@pytest.fixture(scope="module")
def changing(horolog_broker):
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("changing", b"value")
    horolog_broker.clock.run(100)
    horolog_broker.faults.delay("Produce", 0.001, times=None)
    horolog_broker.faults.fail("Heartbeat", "UNKNOWN", times=2)

@pytest.fixture(scope="session")
def of_no_broker():
    return {}

@pytest.fixture(scope="session")
def arming(kafka_bootstrap, horolog_broker):
    horolog_broker.faults.fail("LeaveGroup", "UNKNOWN", times=None)

@pytest.fixture(scope="session")
def failing(horolog_broker):
    pytest.fail("there is no such service")

@pytest.fixture(scope="session")
def deselected(horolog_broker):
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("deselected", b"value")

def kinds(broker):
    return [(each.kind, each.left) for each in broker.faults.waiting]

def test_faults_and_speed_are_there(changing, horolog_broker):
    assert horolog_broker.clock.speed == 100
    assert ("delay", None) in kinds(horolog_broker)
    horolog_broker.faults.clear()
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("new", b"value")

@pytest.mark.parametrize("number", range(2))
def test_they_are_there_again(changing, horolog_broker, of_no_broker, number):
    assert horolog_broker.clock.speed == 100
    assert ("fail", 2) in kinds(horolog_broker)
    assert horolog_broker.faults.injected == []
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("changing", b"value")
    assert [each.kind for each in horolog_broker.faults.injected] == ["delay"]
    assert len(horolog_broker.topic("changing").values()) == 2

def test_of_the_session(changing, arming):
    pass

@pytest.mark.xfail(strict=True)
def test_only_this_one_names_what_fails(failing):
    pass

def test_left_out(deselected):
    assert False
"""

AFTER_CHANGING = """
from horolog import blocking

def test_all_of_that_is_gone(horolog_broker):
    assert horolog_broker.clock.speed == 1
    waiting = [each.kind for each in horolog_broker.faults.waiting]
    assert waiting == ["fail"]  # of the session
    horolog_broker.faults.clear()
    with blocking.Admin(horolog_broker.address) as admin:
        assert not {"changing", "deselected", "new"} & set(admin.list_topics())

def test_what_the_session_armed_stays(horolog_broker):
    assert [each.api.name for each in horolog_broker.faults.waiting] == ["leave-group"]
"""

ADDRESSES = """
import pytest

class TestHttp:
    @pytest.fixture
    def horolog_settings(self):
        return {"http.listen": "127.0.0.1:0"}

    def test_it_is_on(self, horolog_broker):
        assert horolog_broker.http_address

def test_it_is_off_again(horolog_broker):
    assert horolog_broker.http_address is None

class TestKafkaOff:
    @pytest.fixture
    def horolog_settings(self):
        return {"kafka.listen": "off"}

    @pytest.mark.xfail(raises=pytest.fail.Exception, strict=True)
    def test_the_address_of_the_session_is_gone(self, kafka_bootstrap):
        pass

    def test_the_broker_says_so(self, horolog_broker):
        assert horolog_broker.kafka_address is None

class TestOfTwoPorts:
    @pytest.fixture
    def horolog_settings(self):
        return {"kafka.listen": "127.0.0.1:0,sasl_plaintext://127.0.0.1:0"}

    def test_the_first_is_that_of_the_session(self, horolog_broker, kafka_bootstrap):
        assert horolog_broker.kafka_address == kafka_bootstrap

def test_it_is_on_again(horolog_broker, kafka_bootstrap):
    assert horolog_broker.kafka_address == kafka_bootstrap
"""

TAKEN_IN_A_TEST = """
import pytest
from horolog import blocking

def topics(broker):
    with blocking.Admin(broker.address) as admin:
        return sorted(admin.list_topics())

@pytest.fixture(scope="session")
def storing(horolog_broker):
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("stored", b"value")

def test_it_is_there(horolog_broker, request):
    request.getfixturevalue("storing")
    assert "stored" in topics(horolog_broker)

def test_it_went_with_the_test(horolog_broker):
    assert "stored" not in topics(horolog_broker)
"""

LOADED = """
import json, sys
import horolog.testing.plugin
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope="module")
def passed(run_pytest: Callable[..., str]) -> Counter[str]:
    """How many tests of each module passed, in one run of all: a start takes a second and more."""
    modules = {f"test_example_{number}": source for number, source in enumerate(EXAMPLES)}
    modules |= {"test_plain": SYNCHRONOUS, "test_isolation": ISOLATION}
    modules |= {"conftest": OF_SESSION, "test_y": LATE, "test_z": LAST, "test_first": FIRST}
    modules |= {"test_za": STOPPED, "test_zb": LATER, "test_zc": AFTER_LATER}
    modules |= {"test_zd": CHANGING, "test_ze": AFTER_CHANGING, "test_zf": ADDRESSES}
    modules |= {"test_zg": TAKEN_IN_A_TEST}
    told = run_pytest(modules, "--verbose", "--deselect=test_zd.py::test_left_out")
    return Counter(re.findall(r"^(\w+)\.py::\S.* PASSED", told, re.MULTILINE))


NAMES = [re.findall(r"def (test_\w+)", source)[0] for source in EXAMPLES]


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=NAMES)
def test_the_examples_of_the_page(passed: Counter[str], number: int) -> None:
    several = 2 if re.search("parametrize|unittest", EXAMPLES[number]) else 1
    assert passed[f"test_example_{number}"] == several


def test_the_first_example_of_the_page(passed: Counter[str]) -> None:
    assert passed["test_first"] == 1


def test_the_commands_of_the_page(horolog_broker: BrokerThread, tmp_path: Path) -> None:
    run = Program(horolog_broker.address, cwd=tmp_path)
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("clicks", b"first", timestamp_ms=1_479_144_272_509)
    for command in COMMANDS:
        assert "1 message in the window" in run.ok(*shlex.split(command)).err
    assert COMMANDS
    assert horolog_broker.load(tmp_path / "clicks.jsonl", topic="again").messages == 1


def test_the_page_has_an_example_of_each_client() -> None:
    assert len(EXAMPLES) == 13
    assert len(WRITTEN) == len(EXAMPLES) + len(ELSEWHERE)
    clients = ("confluent_kafka", "confluent_kafka.aio", "aiokafka", "kafka", *ELSEWHERE)
    for client in clients:
        assert any(f"from {client}" in source for source in WRITTEN)


def test_plain_tests_with_warnings_as_errors(passed: Counter[str]) -> None:
    assert passed["test_plain"] == 2


def test_each_test_finds_what_wider_fixtures_made(passed: Counter[str]) -> None:
    assert [passed[name] for name in ("test_isolation", "test_y", "test_z")] == [9, 4, 1]


def test_fixtures_of_the_session_come_first_and_stay(passed: Counter[str]) -> None:
    assert [passed[name] for name in ("test_za", "test_zb", "test_zc")] == [1, 3, 1]


def test_what_a_module_changed_goes_after_it_and_holds_in_each_of_its_tests(
    passed: Counter[str],
) -> None:
    """Its running clock and its faults too, whichever fixtures of the session come later."""
    assert [passed[name] for name in ("test_zd", "test_ze")] == [4, 2]


def test_what_a_test_has_a_fixture_of_the_session_store_goes_with_it(
    passed: Counter[str],
) -> None:
    assert passed["test_zg"] == 2


def test_addresses_are_put_back(passed: Counter[str]) -> None:
    assert passed["test_zf"] == 5


def test_the_fixtures_are_listed_with_their_meaning(run_pytest: Callable[..., str]) -> None:
    listed = run_pytest({"test_it": SYNCHRONOUS}, "--fixtures")
    for name in ("horolog_broker", "horolog_cluster", "kafka_bootstrap", "horolog_settings"):
        assert name in listed
    assert "A broker on a free port" in listed
    assert "isolation" not in listed


def test_a_run_without_a_broker_loads_next_to_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout))
    parts = {name.split(".")[1] for name in loaded if name.startswith("horolog.")}
    assert not parts & {"client", "config", "protocol", "server", "storage"}
    assert not loaded & {"uvloop", "msgpack", "aiohttp", "structlog"}


SERVING = """
import sys
from threading import Thread
from horolog.cli.main import main

def tell():
    sys.stdin.readline()
    print(*(name for name in sys.modules if name.startswith("horolog.")), flush=True)

Thread(target=tell, daemon=True).start()
sys.argv = ["horolog", "serve", *sys.argv[1:]]
main()
"""


def test_a_broker_that_serves_has_nothing_of_the_test_kit(tmp_path: Path) -> None:
    """Not even when it has answered requests at all of its ports."""
    ports = [f"--{kind}listen=127.0.0.1:0" for kind in ("", "kafka-", "http-")]
    command = [sys.executable, "-c", SERVING, "--data-dir", str(tmp_path / "data"), *ports]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        addresses = dict(re.findall(r"(\w+)=(\S+)", process.stdout.readline()))
        for address in (addresses["native"], f"kafka://{addresses['kafka']}"):
            with blocking.Producer(address) as producer:
                producer.send("clicks", b"value")
        with urlopen(f"http://{addresses['http']}/metrics") as answer:
            assert b"horolog_log_end_offset" in answer.read()
        process.stdin.write("now\n")
        process.stdin.flush()
        loaded = set(process.stdout.readline().split())
        process.terminate()
    assert "horolog.server.dispatch" in loaded
    assert not {name for name in loaded if name.split(".")[1] == "testing"}
