"""The examples in the descriptions of Python's Kafka clients, as their packages have them.

Only the address is another one. Not run: examples that need a Schema Registry, and code that goes
on from an endless loop of another example.
"""

import re
import shlex
import sys
import textwrap
from collections.abc import Sequence
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

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(_LIMIT_SECONDS)]


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


def test_transactions_are_refused_at_once(address: str, tmp_path: Path) -> None:
    """The example goes on from an earlier one."""
    codes = [example("kafka-python", has) for has in ("Fire-and-forget", "begin_transaction")]
    code, log = at(address, "\n".join(codes)), tmp_path / "log"
    with pytest.raises(AssertionError):
        run([sys.executable, script(tmp_path, code)], log, seconds=_SECONDS)
    assert log.read_text().rstrip().endswith("UnsupportedVersionError")


@pytest.mark.parametrize("has", ["# from faststream.rabbit import", "class User(BaseModel)"])
def test_faststream(address: str, messages: Messages, tmp_path: Path, has: str) -> None:
    """The application is run by a line of its own, in place of FastStream's command."""
    python = python_of("faststream")
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    said = examples(description("faststream", [str(packages)]))
    (code,) = (code for code in said if has in code)
    for topic in ("in", "out"):
        messages.create(topic, {})
    log = tmp_path / "log"
    code = at(address, f"{code}\nimport asyncio\nasyncio.run(app.run())\n")
    with running([python, script(tmp_path, code)], log):

        def has_answered() -> bool:
            messages.send("in", ['{"user": "John", "user_id": 1}'])
            return messages.end("out") > 0

        wait_until(has_answered, within_s=_SECONDS, state=partial(tail, log))
    ((_, value),) = messages.read("out", 1)
    assert value is not None
    assert "John" in value.decode()
    assert value.decode().startswith("User: ")
