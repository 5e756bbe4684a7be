"""The examples in the descriptions of Python's Kafka clients, as their packages have them, at the
broker of the fixture `kafka_bootstrap`.

Only the address is another one. All that need a broker are run, except those that need a Schema
Registry too, which come after the others in confluent-kafka's description. What their web sites
have beyond that is not in the packages.
"""

import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

import pytest

from horolog.testing.waiting import wait_until

from .installing import python_of
from .messages import Messages
from .running import run, running, tail

_LIMIT_SECONDS = 300
_SECONDS = 60
_ADDRESSES: Final = re.compile(r"localhost:\d+|mybroker")
_CALL: Final = re.compile(r"\b(Kafka(?:Consumer|Producer))\(((?:[^()]|\(\))*)\)")
"""A client of kafka-python, which has a default address."""

pytestmark = pytest.mark.timeout(_LIMIT_SECONDS)


@pytest.fixture
def address(kafka_bootstrap: str) -> str:
    """The address of the fixture's broker, in place of that of a process of its own."""
    return kafka_bootstrap


def description(package: str, path: Sequence[str] = sys.path) -> str:
    """What a package in one of these folders says of itself, in Markdown or reStructuredText."""
    (found, *_) = distributions(name=package, path=[*path])
    text = found.read_text("METADATA")
    assert text is not None
    return text


def examples(text: str, language: str = "python") -> list[str]:
    """The code in a text."""
    marked = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(
        rf"^\.\. code-block:: {language}\n\n((?:(?:    .*)?\n)+)", text, re.MULTILINE
    )
    return [*marked, *map(textwrap.dedent, indented)]


def example(package: str, *has: str) -> str:
    """The example of a package that has these texts. There is one."""
    fitting = [code for code in examples(description(package)) if all(text in code for text in has)]
    assert len(fitting) == 1, (package, has, fitting)
    return fitting[0]


def at(address: str, code: str) -> str:
    """An example with another address."""

    def named(call: re.Match[str]) -> str:
        given = [call[2]] if call[2] else []
        if "bootstrap_servers" not in call[2]:
            given.append(f"bootstrap_servers='{address}'")
        return f"{call[1]}({', '.join(given)})"

    return _ADDRESSES.sub(address, _CALL.sub(named, code))


def script(folder: Path, code: str) -> Path:
    path = folder / "example.py"
    path.write_text(code)
    return path


@pytest.mark.parametrize(
    ("package", "has", "topic", "value"),
    [
        ("aiokafka", "send_and_wait(", "my_topic", b"Super message"),
        ("confluent-kafka", 'AIOProducer({"bootstrap.servers": "mybroker"})', "mytopic", b"hello"),
    ],
)
def test_producers(
    address: str,
    messages: Messages,
    tmp_path: Path,
    package: str,
    has: str,
    topic: str,
    value: bytes,
) -> None:
    code = at(address, example(package, has))
    run([sys.executable, script(tmp_path, code)], tmp_path / "log", seconds=_SECONDS)
    assert messages.read(topic, 1) == [(None, value)]


@pytest.mark.parametrize(
    ("package", "has", "topic", "shown"),
    [
        ("aiokafka", ("AIOKafkaConsumer(",), "my_topic", "consumed:  my_topic 0 "),
        ("confluent-kafka", ("Consumer({", "while True"), "mytopic", 'Received message: {"a": 1}'),
        ("kafka-python", ("KafkaConsumer('my_favorite_topic')",), "my_favorite_topic", 'b\'{"a"'),
        ("kafka-python", ("group_id='my_favorite_group'",), "my_favorite_topic", 'b\'{"a"'),
        ("kafka-python", ("IsolationLevel",), "txn_topic", "topic='txn_topic'"),
    ],
)
@pytest.mark.ecosystem
def test_consumers(
    address: str,
    messages: Messages,
    tmp_path: Path,
    package: str,
    has: tuple[str, ...],
    topic: str,
    shown: str,
) -> None:
    """They begin with what is sent after they started."""
    for name in {topic, "my_other_topic"}:
        messages.create(name, {})
    log = tmp_path / "log"
    code = at(address, example(package, *has))
    with running([sys.executable, "-u", script(tmp_path, code)], log) as process:

        def has_shown() -> bool:
            assert process.poll() is None, "it ended"
            messages.send(topic, ['{"a": 1}'])
            return shown in log.read_text()

        wait_until(has_shown, within_s=_SECONDS, state=partial(tail, log))


@pytest.mark.ecosystem
def test_kafka_python_produces(address: str, messages: Messages, tmp_path: Path) -> None:
    """All examples of its producer, one after the other, but for transactions."""
    ours = [
        code
        for code in examples(description("kafka-python"))
        if "producer" in code and "transaction" not in code
    ]
    assert len(ours) == 9
    run(
        [sys.executable, script(tmp_path, at(address, "\n".join(ours)))],
        tmp_path / "log",
        seconds=_SECONDS,
    )
    ends = {topic: messages.end(topic) for topic in ("foobar", "fizzbuzz", "flipflap")}
    assert ends == {"foobar": 1103, "fizzbuzz": 1, "flipflap": 1}


@pytest.mark.parametrize(
    ("has", "topic", "partition", "value", "said"),
    [
        # It reads on, until a value is none of the kind that it expects.
        ("JsonSerializer())\nconsumer.sub", "json-foo", 0, "[]", "isinstance(msg.value, dict)"),
        ("TopicPartition('foobar', 2)", "foobar", 2, "anything", ""),
    ],
)
@pytest.mark.ecosystem
def test_kafka_python_reads_json_and_one_message_of_a_partition(
    address: str,
    messages: Messages,
    tmp_path: Path,
    has: str,
    topic: str,
    partition: int,
    value: str,
    said: str,
) -> None:
    messages.create(topic, {}, partitions=partition + 1)
    log = tmp_path / "log"
    code = at(address, example("kafka-python", has))
    with running([sys.executable, "-u", script(tmp_path, code)], log) as process:

        def has_ended() -> bool:
            messages.send(topic, [value], partition=partition)
            return process.poll() is not None

        wait_until(has_ended, within_s=_SECONDS, state=partial(tail, log))
        assert (process.returncode == 0) is (not said)
    assert said in log.read_text()


@pytest.mark.ecosystem
def test_kafka_python_on_the_command_line(address: str, messages: Messages, tmp_path: Path) -> None:
    (code,) = (code for code in examples(description("kafka-python"), "bash") if "admin" in code)
    commands = [
        line for line in code.splitlines() if line and line[0] not in "#" and "pip" not in line
    ]
    assert len(commands) == 4
    programs = Path(sys.executable).parent
    for number, command in enumerate(commands):
        line = f"PATH={shlex.quote(str(programs))}:$PATH; {_ADDRESSES.sub(address, command)}"
        run(["bash", "-c", line], tmp_path / str(number), seconds=_SECONDS)
    assert messages.end("foo-topic") == 1
    assert "foo message" in (tmp_path / "3").read_text()


def test_confluent_kafka_creates_topics(address: str, messages: Messages, tmp_path: Path) -> None:
    code, log = at(address, example("confluent-kafka", "create_topics")), tmp_path / "log"
    run([sys.executable, script(tmp_path, code)], log, seconds=_SECONDS)
    assert sorted(log.read_text().splitlines()) == ["Topic topic1 created", "Topic topic2 created"]


@pytest.mark.ecosystem
def test_transactions_are_refused_at_once(address: str, tmp_path: Path) -> None:
    """The example goes on from an earlier one."""
    codes = [example("kafka-python", has) for has in ("Fire-and-forget", "begin_transaction")]
    code, log = at(address, "\n".join(codes)), tmp_path / "log"
    with pytest.raises(AssertionError):
        run([sys.executable, script(tmp_path, code)], log, seconds=_SECONDS)
    assert log.read_text().rstrip().endswith("UnsupportedVersionError")


@pytest.mark.ecosystem
def test_kafka_python_reads_headers_and_measures(
    address: str, messages: Messages, tmp_path: Path
) -> None:
    """Both examples go on from an earlier one; the first of them has no end."""
    messages.create("foobar", {}, partitions=3)
    first, metrics, headers = (
        example("kafka-python", has)
        for has in ("TopicPartition('foobar', 2)", "consumer.metrics()", "print (msg.headers)")
    )
    log = tmp_path / "log"
    path = script(tmp_path, at(address, f"{first}\n{metrics}\nprint(*metrics)\n{headers}"))
    with running([sys.executable, "-u", path], log) as process:

        def has_shown() -> bool:
            assert process.poll() is None, "it ended"
            messages.send("foobar", ["1"], partition=2, headers={"content-encoding": "base64"})
            return "[('content-encoding', b'base64')]" in log.read_text()

        wait_until(has_shown, within_s=_SECONDS, state=partial(tail, log))
    assert "consumer-fetch-manager-metrics" in log.read_text()


@pytest.mark.parametrize("has", ["# from faststream.rabbit import", "class User(BaseModel)"])
@pytest.mark.ecosystem
def test_faststream(address: str, messages: Messages, tmp_path: Path, has: str) -> None:
    """The application is run by a line of its own, in place of FastStream's command."""
    code = f"{of_faststream(has)}\nimport asyncio\nasyncio.run(app.run())\n"
    for topic in ("in", "out"):
        messages.create(topic, {})
    log = tmp_path / "log"
    with running([python_of("faststream"), script(tmp_path, at(address, code))], log):
        send_until(
            messages, "in", '{"user": "John", "user_id": 1}', log, lambda: messages.end("out") > 0
        )
    ((_, value),) = messages.read("out", 1)
    assert value is not None
    assert "John" in value.decode()
    assert value.decode().startswith("User: ")


@pytest.mark.parametrize(
    ("has", "run_by", "topic", "value", "shown"),
    [
        (
            "base_dep",
            "import asyncio\nasyncio.run(app.run())",
            "in-test",
            '{"user": "John", "user_id": 1}',
            "John",
        ),
        ("aiohttp", "", "test", '"first"', "first"),
        (
            "FastAPI",
            "import asyncio\n"
            "async def serve():\n"
            "    async with app.router.lifespan_context(app):\n"
            "        await asyncio.Event().wait()\n"
            "asyncio.run(serve())",
            "test",
            '{"m": {}}',
            "",
        ),
    ],
    ids=["dependency", "aiohttp", "fastapi"],
)
@pytest.mark.ecosystem
def test_faststream_in_programs(
    address: str,
    messages: Messages,
    tmp_path: Path,
    has: str,
    run_by: str,
    topic: str,
    value: str,
    shown: str,
) -> None:
    """The one with a dependency goes on from the first example; that with aiohttp gets a free port,
    and that with FastAPI is served to nobody."""
    code = of_faststream(has).replace("run_app(app)", "run_app(app, port=0)")
    if has == "base_dep":
        code = f"{of_faststream('# from faststream.rabbit import')}\n{code}"
    else:
        code = f"import site\nsite.addsitedir({str(Path(pytest.__file__).parents[1])!r})\n{code}"
    for each in ("in", "in-test", "out", "response", "test"):
        messages.create(each, {})
    log = tmp_path / "log"
    path = script(tmp_path, at(address, f"{code}\n{run_by}\n"))

    def has_handled() -> bool:
        return shown in log.read_text() if shown else messages.end("response") > 0

    with running([python_of("faststream"), "-u", path], log):
        send_until(messages, topic, value, log, has_handled)
    if not shown:
        assert messages.read("response", 1) == [(None, b'{"response":"Hello, world!"}')]


def of_faststream(has: str) -> str:
    """The example of FastStream's description that has this text."""
    (packages,) = python_of("faststream").parents[1].glob("lib/python*/site-packages")
    said = examples(description("faststream", [str(packages)]))
    (code,) = (code for code in said if has in code)
    return code


def send_until(
    messages: Messages, topic: str, value: str, log: Path, is_done: Callable[[], bool]
) -> None:
    """Send again and again: a subscriber begins with what is sent after it started."""

    def tried() -> bool:
        messages.send(topic, [value])
        return is_done()

    wait_until(tried, within_s=_SECONDS, state=partial(tail, log))
