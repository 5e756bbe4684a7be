"""Commands of Kafka's own tools that ask what only a Kafka has, or is asked for rarely."""

import subprocess
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer

from horolog.bench.apache_kafka import SMALL_JVM, Unavailable, class_path

from .installing import not_installed
from .messages import Messages

_LIMIT_SECONDS = 900
"""Maven fetches the tools the first time."""

_TOOLS = "org.apache.kafka.tools"
_GROUPS = f"{_TOOLS}.consumer.group.ConsumerGroupCommand"

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(_LIMIT_SECONDS)]

Tool = Callable[..., tuple[int, str]]


@pytest.fixture
def tool(address: str) -> Tool:
    """Runs the command of a class; gives its exit code and what it wrote."""
    try:
        java = ["java", *SMALL_JVM, "-cp", class_path()]
    except Unavailable as error:
        not_installed(str(error))
        raise

    def run(command: str, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [*java, command, "--bootstrap-server", address, *arguments],
            capture_output=True,
            text=True,
            timeout=180,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_groups_are_listed_with_state_and_type(
    tool: Tool, address: str, messages: Messages
) -> None:
    messages.send("words", ["a"])
    settings = {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe(["words"])
        assert consumer.poll(60) is not None
        for option, shown in (("--state", "Stable"), ("--type", "Classic")):
            code, said = tool(_GROUPS, "--list", option, "--timeout", "120000")
            assert code == 0
            assert ["g", shown] in [line.split() for line in said.splitlines()], said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("reassign.ReassignPartitionsCommand", "--list"), "No partition reassignments found"),
        (("GetOffsetShell", "--topic", "words", "--time", "-3"), "words:0:0"),
        (("TransactionsCommand", "list"), "TransactionalId"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_answers(tool: Tool, messages: Messages, command: tuple[str, ...], said: str) -> None:
    messages.send("words", ["a"])
    name, *arguments = command
    code, found = tool(f"{_TOOLS}.{name}", *arguments)
    assert code == 0, found
    assert said in found


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ("LeaderElectionCommand", "--election-type=preferred", "--all-topic-partitions"),
            "horolog cluster promote",
        ),
        (("MetadataQuorumCommand", "describe", "--status"), "horolog cluster status"),
        (
            ("TopicCommand", "--create", "--topic", "two", "--replication-factor", "2"),
            "the number of brokers on record",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_refusals_name_what_to_use(
    tool: Tool, messages: Messages, command: tuple[str, ...], said: str
) -> None:
    messages.send("words", ["a"])
    name, *arguments = command
    code, found = tool(f"{_TOOLS}.{name}", *arguments)
    assert code != 0
    assert said in found
