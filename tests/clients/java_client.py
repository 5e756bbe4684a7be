"""Kafka's client for Java, of any version, in a process that takes commands as lines."""

import subprocess
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count as numbers
from pathlib import Path
from typing import ClassVar, Final

from horolog.bench.apache_kafka import SMALL_JVM, jars

from .access import Access, jaas, java
from .client import (
    PLAIN,
    POLL_SECONDS,
    WAIT_SECONDS,
    Client,
    Member,
    Message,
    Refused,
    Sending,
    Stored,
    Writer,
)
from .steps import Step

SOURCES: Final = Path(__file__).with_name("java")
_NO_SETTING: Final = ("0.9.0.1", "0.10.0.1")
"""Versions that take a user from a file of JAAS, and have no setting for one."""


def class_path(version: str) -> str:
    """The jars of a version; Maven fetches them the first time. Raises `Unavailable`."""
    return jars(SOURCES / "pom.xml", {"kafka.version": version})


class JavaClient(Client):
    """A subclass says of which version."""

    version: ClassVar[str]
    untried = frozenset(Step) - {Step.NONE, Step.GZIP, Step.MID_BATCH, Step.GROUP}

    def __init__(self, address: str, access: Access | None = None) -> None:
        super().__init__(address, access)
        self._names = numbers()
        self._folder = tempfile.TemporaryDirectory(prefix="kafka-client-")
        settings = {"bootstrap.servers": address, **java(access)}
        command = ["java", *SMALL_JVM, *self._jaas(), "-cp", class_path(self.version)]
        self._log = (Path(self._folder.name) / "log").open("w+")
        self._process = subprocess.Popen(
            [*command, str(SOURCES / "Commands.java")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._say(*(f"{name}={value}" for name, value in settings.items()))

    def _jaas(self) -> list[str]:
        if self.version not in _NO_SETTING or self.access is None or not self.access.mechanism:
            return []
        path = Path(self._folder.name) / "jaas"
        path.write_text(f"KafkaClient {{ {jaas(self.access)} }};\n")
        return [f"-Djava.security.auth.login.config={path}"]

    def close(self) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(WAIT_SECONDS)
            finally:
                process.kill()
        self._log.close()
        self._folder.cleanup()

    def _say(self, *parts: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(parts) + "\n")
        self._process.stdin.flush()

    def ask(self, *parts: str) -> list[str]:
        """Have the process do a command; what it found. Raises `Refused`."""
        self._say(*parts)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"the client has ended: {self._log.read()}")
        outcome, *found = line.rstrip("\n").split("\t")
        if outcome != "ok":
            raise Refused(_name(found[0]))
        return found

    def produce(self, topic: str, messages: Sequence[Message], sending: Sending = PLAIN) -> None:
        sent = [f"{_text(message.key)}:{_text(message.value)}" for message in messages]
        idempotent = str(sending.idempotent).lower()
        self.ask("produce", topic, sending.codec, idempotent, str(sending.partition), *sent)

    def consume(self, topic: str, count: int, offset: int = 0) -> list[Stored]:
        found = self.ask("consume", topic, str(offset), str(count), "nobody")
        return [_stored(one) for one in found]

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[Member]:
        name = f"member-{next(self._names)}"
        self.ask("join", name, group, topic)
        member = _Member(self, name)
        try:
            yield member
        finally:
            member.close()

    def writer(self, topic: str) -> AbstractContextManager[Writer]:
        raise NotImplementedError


class _Member(Member):
    def __init__(self, client: JavaClient, name: str) -> None:
        self._client = client
        self._name = name
        self._open = True

    def poll(self) -> Sequence[Stored]:
        found = self._client.ask("poll", self._name, str(int(POLL_SECONDS * 1000)))
        return [_stored(one) for one in found]

    def assigned(self) -> set[int]:
        return set(map(int, self._client.ask("assigned", self._name)))

    def commit(self) -> None:
        self._client.ask("commit", self._name)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._client.ask("leave", self._name)


def of_version(version: str) -> type[JavaClient]:
    """The client of a version."""
    fields: Mapping[str, object] = {"name": f"kafka-clients {version}", "version": version}
    return type(f"JavaClient{version.replace('.', '')}", (JavaClient,), dict(fields))


def _stored(text: str) -> Stored:
    partition, offset, key, value = text.split(":")
    content = Message(b64decode(value), None if key == "-" else b64decode(key))
    return Stored(int(partition), int(offset), content)


def _text(data: bytes | None) -> str:
    return "-" if data is None else b64encode(data).decode()


def _name(kind: str) -> str:
    """Kafka's name of an error, of that of its class."""
    words = kind.removesuffix("Exception")
    return "".join(f"_{one}" if one.isupper() else one.upper() for one in words).lstrip("_")
