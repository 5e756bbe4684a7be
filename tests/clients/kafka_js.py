"""kafkajs: the client for Node.js, in a process that takes commands as lines of JSON."""

import fcntl
import json
import os
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import count as numbers
from pathlib import Path
from typing import Any, ClassVar

from .access import Access, kafka_js
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

SOURCES = Path(__file__).parent / "kafkajs"
CACHE = Path(__file__).resolve().parents[2] / "build" / "kafkajs"
_INSTALL_SECONDS = 150


def installed() -> Path:
    """The folder of the packages that `package-lock.json` names; npm fetches them the first time.

    Raises `RuntimeError` with what npm said.
    """
    locked = sha256((SOURCES / "package-lock.json").read_bytes()).hexdigest()[:16]
    folder = CACHE / locked
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            folder.mkdir(exist_ok=True)
            for name in ("package.json", "package-lock.json", ".npmrc"):
                shutil.copy(SOURCES / name, folder)
            done = subprocess.run(
                ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=_INSTALL_SECONDS,
            )
            if done.returncode != 0:
                raise RuntimeError(f"npm could not install kafkajs: {done.stderr}")
            (folder / "complete").touch()
    return folder / "node_modules"


class KafkaJs(Client):
    name = "kafkajs"
    unable: ClassVar[Mapping[Step, str]] = {Step.ZSTD: "has no zstd"}

    def __init__(self, address: str, access: Access | None = None) -> None:
        super().__init__(address, access)
        self._ids = numbers()
        self._process = subprocess.Popen(
            ["node", str(SOURCES / "commands.js"), address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "NODE_PATH": str(installed()),
                "KAFKAJS_NO_PARTITIONER_WARNING": "1",
                "KAFKAJS_ACCESS": json.dumps(kafka_js(access)),
            },
        )

    def close(self) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(WAIT_SECONDS)
            finally:
                process.kill()

    def ask(self, command: str, **what: Any) -> Any:
        """Have the process do a command; its result. Raises `Refused`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        number = next(self._ids)
        self._process.stdin.write(json.dumps({"id": number, "command": command, **what}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert answer["id"] == number
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def produce(self, topic: str, messages: Sequence[Message], sending: Sending = PLAIN) -> None:
        self.ask(
            "produce",
            topic=topic,
            codec=sending.codec,
            idempotent=sending.idempotent,
            partition=sending.partition,
            messages=[
                {
                    "key": _text(message.key),
                    "value": _text(message.value),
                    "timestamp": message.timestamp_ms,
                    "headers": [[name, _text(value)] for name, value in message.headers],
                }
                for message in messages
            ],
        )

    def consume(self, topic: str, count: int, offset: int = 0) -> list[Stored]:
        # It has no consumer without a group.
        group = f"alone-{next(self._ids)}"
        found: list[Stored] = []
        with self._member(group, topic, offset) as member:
            while len(found) < count:
                found += [one for one in member.poll() if one.partition == 0]
        return found[:count]

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[Member]:
        with self._member(group, topic, 0) as member:
            yield member

    @contextmanager
    def _member(self, group: str, topic: str, offset: int) -> Iterator[Member]:
        name = f"member-{next(self._ids)}"
        self.ask("join", name=name, group=group, topic=topic, offset=offset)
        member = _Member(self, name, topic)
        try:
            yield member
        finally:
            member.close()

    @contextmanager
    def writer(self, topic: str) -> Iterator[Writer]:
        name = f"writer-{next(self._ids)}"
        self.ask("open_writer", name=name)
        try:
            yield _Writer(self, name, topic)
        finally:
            self.ask("close_writer", name=name)

    def offsets_for_times(self, topic: str, times: Sequence[int]) -> list[int | None]:
        found: list[int | None] = self.ask("offsets_for_times", topic=topic, times=times)
        return found

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        self.ask("create_topic", topic=topic, partitions=partitions, settings=settings)

    def partitions(self, topic: str) -> int:
        found: int = self.ask("partitions", topic=topic)
        return found

    def settings(self, topic: str) -> Mapping[str, str]:
        found: dict[str, str] = self.ask("settings", topic=topic)
        return found

    def alter_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        self.ask("alter_topic", topic=topic, settings=settings)

    def delete_topic(self, topic: str) -> None:
        self.ask("delete_topic", topic=topic)


class _Writer(Writer):
    def __init__(self, client: KafkaJs, name: str, topic: str) -> None:
        self._client = client
        self._name = name
        self._topic = topic

    def write(self, value: bytes) -> None:
        self._client.ask("write", name=self._name, topic=self._topic, value=_text(value))

    def finish(self) -> None:
        self._client.ask("finish", name=self._name)


class _Member(Member):
    def __init__(self, client: KafkaJs, name: str, topic: str) -> None:
        self._client = client
        self._name = name
        self._topic = topic
        self._open = True

    def poll(self) -> Sequence[Stored]:
        polled = self._client.ask("poll", name=self._name, wait_ms=int(POLL_SECONDS * 1000))
        return [
            Stored(
                one["partition"],
                one["offset"],
                Message(
                    b64decode(one["value"]),
                    None if one["key"] is None else b64decode(one["key"]),
                    -1 if one["timestamp"] is None else one["timestamp"],
                    tuple((name, b64decode(value)) for name, value in one["headers"]),
                ),
            )
            for one in polled
        ]

    def assigned(self) -> set[int]:
        return set(self._client.ask("assigned", name=self._name))

    def commit(self) -> None:
        self._client.ask("commit", name=self._name, topic=self._topic)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._client.ask("leave", name=self._name)


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()
