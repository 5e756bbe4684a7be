"""The tools that come with Apache Kafka: its Java client on the command line."""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import ClassVar

from horolog.bench.apache_kafka import POM
from horolog.bench.apache_kafka import tool as command_of

from .access import Access, java
from .client import (
    PLAIN,
    POLL_SECONDS,
    Client,
    Member,
    Message,
    Refused,
    Sending,
    Stored,
    Writer,
)
from .pipes import Lines
from .steps import Step

_LOGGING = Path(__file__).with_suffix(".log4j.properties").as_uri()
"""Makes them say on standard error what was refused: their exit code does not."""

_TOOL_SECONDS = 150
"""Each starts a Java of its own, which takes seconds of a processor before it does anything."""

_NO_TIME = "have no option for a message's time"
_TRIED = {Step.NONE, Step.ZSTD, Step.HEADERS, Step.GROUP, Step.MID_BATCH}

_PRODUCER = "kafka.tools.ConsoleProducer"
_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_TOPICS = "org.apache.kafka.tools.TopicCommand"
_CONFIGS = "kafka.admin.ConfigCommand"
_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_CONFIG_OPTIONS = {_PRODUCER: "--producer.config", _CONSUMER: "--consumer.config"}
"""Which option takes the file of settings; that of the other tools has another name."""
_NO_MESSAGE_TIME = "NO_TIMESTAMP"
"""What is shown of messages of format v0."""
_SHOWN = ("timestamp", "partition", "offset", "headers", "key")
"""What stands before the value in a line of the consumer, in this order."""


class ApacheTools(Client):
    name = "kafka-tools"
    unable: ClassVar[Mapping[Step, str]] = {
        Step.TIMES: _NO_TIME,
        Step.INVALID_TIMESTAMP: _NO_TIME,
        Step.REBALANCE: "do not tell which partitions they have",
    }
    untried = frozenset(Step) - _TRIED

    def __init__(self, address: str, access: Access | None = None) -> None:
        super().__init__(address, access)
        self._folder = tempfile.TemporaryDirectory(prefix="kafka-tools-")
        self._config = Path(self._folder.name) / "client.properties"
        lines = [f"{name}={value}\n" for name, value in java(access).items()]
        self._config.write_text("".join(lines))

    def close(self) -> None:
        self._folder.cleanup()

    def produce(self, topic: str, messages: Sequence[Message], sending: Sending = PLAIN) -> None:
        properties = {"parse.key": "true", "null.marker": "null"}
        if messages[0].headers:
            properties["parse.headers"] = "true"
        lines = []
        for message in messages:
            headers = ",".join(f"{name}:{value.decode()}" for name, value in message.headers)
            key = "null" if message.key is None else message.key.decode()
            lines.append("\t".join([*([headers] if headers else []), key, message.value.decode()]))
        self._run(
            _PRODUCER,
            "--topic",
            topic,
            "--compression-codec",
            sending.codec,
            *_options("--property", properties),
            *_options("--producer-property", {"linger.ms": "1000", "request.timeout.ms": "30000"}),
            stdin="".join(f"{line}\n" for line in lines),
        )

    def consume(self, topic: str, count: int, offset: int = 0) -> list[Stored]:
        said = self._run(
            *(_CONSUMER, "--topic", topic, "--partition", "0", "--offset", str(offset)),
            *("--max-messages", str(count), *_shown()),
        )
        return [_stored(line) for line in said.splitlines()]

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[Member]:
        command = self._command(_CONSUMER, "--topic", topic, "--group", group, "--from-beginning")
        settings = _options("--consumer-property", {"auto.commit.interval.ms": "100"})
        with subprocess.Popen(
            [*command, *settings, *_shown()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            member = _Member(process)
            try:
                yield member
            finally:
                member.close()

    def writer(self, topic: str) -> AbstractContextManager[Writer]:
        raise NotImplementedError

    def offsets_for_times(self, topic: str, times: Sequence[int]) -> list[int | None]:
        said = [self._run(_OFFSETS, "--topic", topic, "--time", str(time)) for time in times]
        found = [line.strip().rpartition(":")[2] for line in said]
        return [int(offset) if offset else None for offset in found]

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        sizes = ("--partitions", str(partitions), "--replication-factor", "1")
        self._run(_TOPICS, "--create", "--topic", topic, *sizes, *_options("--config", settings))

    def create_topic_by_default(self, topic: str) -> None:
        """Leave partitions and replication factor to the broker."""
        self._run(_TOPICS, "--create", "--topic", topic)

    def partitions(self, topic: str) -> int:
        # Without this option a topic that is not there is an error.
        said = self._run(_TOPICS, "--describe", "--topic", topic, "--if-exists")
        return len(re.findall(r"Partition: \d+", said))

    def alter_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        added = ",".join(f"{name}={value}" for name, value in settings.items())
        self._run(_CONFIGS, "--alter", "--topic", topic, "--add-config", added)

    def delete_topic(self, topic: str) -> None:
        self._run(_TOPICS, "--delete", "--topic", topic)

    def begin_transactions(self, topic: str) -> None:
        """Start a producer with a transactional id. Raises `Refused`."""
        sizes = ("--num-records", "1", "--record-size", "1", "--throughput", "-1")
        transactions = ("--transactional-id", "mine", "--transaction-duration-ms", "100")
        server = ("--producer-props", f"bootstrap.servers={self.address}")
        self._run_alone(_PERFORMANCE, "--topic", topic, *sizes, *transactions, *server)

    def places(self, group: str) -> dict[tuple[str, int], tuple[int, int]]:
        """The offset that a group has committed and that of the end, by partition."""
        said = self._run(_GROUPS, "--describe", "--group", group)
        rows = [line.split() for line in said.splitlines() if line.startswith(group)]
        return {(row[1], int(row[2])): (int(row[3]), int(row[4])) for row in rows}

    def delete_positions(self, group: str, topic: str) -> None:
        self._run(_GROUPS, "--delete-offsets", "--group", group, "--topic", topic)

    def _command(self, tool: str, *arguments: str) -> list[str]:
        return _java(tool, "--bootstrap-server", self.address, *self._let_in(tool), *arguments)

    def _let_in(self, tool: str) -> list[str]:
        if self.access is None:
            return []
        return [_CONFIG_OPTIONS.get(tool, "--command-config"), str(self._config)]

    def _run(self, tool: str, *arguments: str, stdin: str = "") -> str:
        server = ("--bootstrap-server", self.address, *self._let_in(tool))
        return self._run_alone(tool, *server, *arguments, stdin=stdin)

    def _run_alone(self, tool: str, *arguments: str, stdin: str = "") -> str:
        """As `_run`, for a tool that has another option for the address."""
        done = subprocess.run(
            _java(tool, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_TOOL_SECONDS,
        )
        if done.returncode != 0 or "ERROR" in done.stderr:
            raise Refused(done.stdout + done.stderr)
        return done.stdout


class _Member(Member):
    """It commits by itself, every tenth of a second and in the end."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        self._process = process
        self._out = Lines(process.stdout)

    def poll(self) -> Sequence[Stored]:
        return [_stored(line) for line in self._out.take(POLL_SECONDS)]

    def assigned(self) -> set[int]:
        raise NotImplementedError

    def commit(self) -> None:
        pass

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(_TOOL_SECONDS)


def _java(tool: str, *arguments: str) -> list[str]:
    return command_of(tool, *arguments, jvm=[f"-Dlog4j.configuration={_LOGGING}"])


def version() -> str:
    """Of the Apache Kafka whose tools these are."""
    found = re.search(r"<version>([\d.]+\.[\d.]+)</version>", POM.read_text("utf-8"))
    assert found is not None
    return found[1]


def _options(option: str, settings: Mapping[str, str]) -> list[str]:
    return [text for name, value in settings.items() for text in (option, f"{name}={value}")]


def _shown() -> list[str]:
    return _options("--property", {f"print.{name}": "true" for name in _SHOWN})


def _stored(line: str) -> Stored:
    time, partition, offset, headers, key, value = line.split("\t")
    return Stored(
        int(partition.removeprefix("Partition:")),
        int(offset.removeprefix("Offset:")),
        Message(
            value.encode(),
            None if key == "null" else key.encode(),
            -1 if time == _NO_MESSAGE_TIME else int(time.rpartition(":")[2]),
            tuple(_header(one) for one in headers.split(",") if headers != "NO_HEADERS"),
        ),
    )


def _header(text: str) -> tuple[str, bytes]:
    name, _, value = text.partition(":")
    return name, value.encode()
