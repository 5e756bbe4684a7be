"""kcat: the command-line client, over Debian's librdkafka."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

from .access import librdkafka
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
from .pipes import Lines
from .steps import Step

_KEY_MARK = "|"
_NO_ADMIN = "has no commands for topics"


class Kcat(Client):
    name = "kcat"
    unable: ClassVar[Mapping[Step, str]] = {
        Step.TIMES: "has no option for a message's time",
        Step.INVALID_TIMESTAMP: "has no option for a message's time",
        Step.TOPICS: _NO_ADMIN,
        Step.TIMESTAMP_SETTINGS: _NO_ADMIN,
    }

    def produce(self, topic: str, messages: Sequence[Message], sending: Sending = PLAIN) -> None:
        headers = [f"-H{name}={value.decode()}" for name, value in messages[0].headers]
        assert all(message.headers == messages[0].headers for message in messages)
        lines = [
            f"{(message.key or b'').decode()}{_KEY_MARK}{message.value.decode()}\n"
            for message in messages
        ]
        options = [f"-Xenable.idempotence={str(sending.idempotent).lower()}", "-Xlinger.ms=20"]
        self._run(
            ["-P", "-t", topic, "-p", str(sending.partition), "-z", sending.codec],
            ["-K", _KEY_MARK, *headers, *options],
            stdin="".join(lines),
        )

    def consume(self, topic: str, count: int, offset: int = 0) -> list[Stored]:
        said = self._run(
            ["-C", "-t", topic, "-p", "0", "-o", str(offset), "-c", str(count)], ["-J", "-q"]
        )
        return [_stored(line) for line in said.splitlines()]

    def offsets_for_times(self, topic: str, times: Sequence[int]) -> list[int | None]:
        found: list[int | None] = []
        for time in times:
            said = self._run(["-Q", "-t", f"{topic}:0:{time}"], [])
            match = re.search(r"offset (-?\d+)", said)
            assert match is not None, said
            found.append(None if match[1] == "-1" else int(match[1]))
        return found

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[Member]:
        options = ["-Xauto.offset.reset=earliest", "-Xheartbeat.interval.ms=100"]
        options += ["-Xqueued.max.messages.kbytes=1024", "-Xreconnect.backoff.max.ms=200"]
        options += ["-Xauto.commit.interval.ms=100"]
        with subprocess.Popen(
            [*self._command, *options, "-E", "-J", "-u", "-G", group, topic],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            member = _Member(process)
            try:
                yield member
            finally:
                member.close()

    @contextmanager
    def writer(self, topic: str) -> Iterator[Writer]:
        options = ["-Xenable.idempotence=true", "-Xreconnect.backoff.max.ms=200"]
        with subprocess.Popen(
            [*self._command, *options, "-E", "-P", "-t", topic, "-p", "0"], stdin=subprocess.PIPE
        ) as process:
            try:
                yield _Writer(process)
            finally:
                process.kill()

    def _run(self, what: Sequence[str], options: Sequence[str], stdin: str = "") -> str:
        done = subprocess.run(
            [*self._command, *options, *what],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
        )
        if done.returncode != 0:
            raise Refused(done.stderr)
        return done.stdout

    @property
    def _command(self) -> list[str]:
        access = [f"-X{name}={value}" for name, value in librdkafka(self.access).items()]
        return ["kcat", "-b", self.address, "-Xbroker.address.family=v4", *access]


class _Writer(Writer):
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def write(self, value: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(value + b"\n")
        self._process.stdin.flush()

    def finish(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(WAIT_SECONDS)
        if code:
            raise Refused(f"exit code {code}")


class _Member(Member):
    """It commits by itself what it has written out, every tenth of a second and in the end."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._out = Lines(process.stdout)
        self._errors = Lines(process.stderr)
        self._assigned: set[int] = set()

    def poll(self) -> Sequence[Stored]:
        return [_stored(line) for line in self._out.take(POLL_SECONDS)]

    def assigned(self) -> set[int]:
        for line in self._errors.take(0):
            if "rebalanced" in line and ": assigned: " in line:
                self._assigned = {int(found) for found in re.findall(r"\[(\d+)\]", line)}
            elif "rebalanced" in line:
                self._assigned = set()
        return self._assigned

    def commit(self) -> None:
        pass

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(WAIT_SECONDS)


def _stored(line: str) -> Stored:
    found = json.loads(line)
    flat = found.get("headers", [])
    headers = tuple(
        (name, value.encode()) for name, value in zip(flat[::2], flat[1::2], strict=True)
    )
    key = found["key"]
    message = Message(
        found["payload"].encode(),
        None if key is None else key.encode(),
        found.get("ts", -1),
        headers,
    )
    return Stored(found["partition"], found["offset"], message)
