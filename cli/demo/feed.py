"""The demo's messages: commits of a repository or files of a folder, with real times that are out
of order, and samples of this host's load. Sends them to the broker and reads them back."""

import asyncio
import json
import os
import socket
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...client.administer.admin import Admin
from ...client.consume.consumer import Consumer
from ...client.errors import ConnectionFailed
from ...client.produce.producer import Producer
from ...client.results import ConsumerRecord
from ...protocol.errors import CodedError, TopicAlreadyExists
from ...protocol.records.messages.sets import NewRecord
from ..errors import note

COMMITS_MINIMUM: Final = 1000
"""A repository with this many commits or fewer is too small; its files are used instead."""

MESSAGES_MAXIMUM: Final = 50_000
"""Limit of messages sent; more would only make the user wait."""

_GIT_TIMEOUT_SECONDS: Final = 60

_MEMORY: Final = Path("/proc/meminfo")
_MEMORY_FIELDS: Final = {"MemTotal": "memory_total_bytes", "MemAvailable": "memory_available_bytes"}

_SAMPLE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class History:
    """Messages in the order in which they were found, and a description of them."""

    topic: str
    what: str
    """Description, for a sentence such as "... holds 5,000 messages: <what>"."""
    records: tuple[NewRecord, ...]


def find_history(folder: Path | None) -> History:
    """Return the history of `folder`. Without a folder, that of this program's repository if it
    has enough commits, else that of the running Python installation. Raises `OSError`.
    """
    repository = folder or Path(__file__).resolve().parents[2]
    commits = _commits(repository)
    if len(commits) > COMMITS_MINIMUM:
        what = f"the commits of {repository}, with their authors' times"
        return History("demo-commits", what, commits[-MESSAGES_MAXIMUM:])
    if folder is not None:
        what = f"the files under {folder}, with the times they were changed"
        return History("demo-files", what, _files([folder.resolve(strict=True)]))
    installation = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    what = "the files of this Python installation, with the times they were changed"
    return History("demo-files", what, _files(installation))


def _commits(repository: Path) -> tuple[NewRecord, ...]:
    """Return hash and subject of every commit, oldest first; empty without a repository."""
    top = _git(repository, "rev-parse", "--show-toplevel")
    if top is None or Path(os.fsdecode(top.strip())).resolve() != repository.resolve():
        return ()  # the folder is only a part of another repository
    log = _git(repository, "log", "--reverse", "-z", "--format=%at%x09%h%x09%s")
    return tuple(_commit_records(log.split(b"\0"))) if log else ()


def _commit_records(lines: Iterable[bytes]) -> Iterator[NewRecord]:
    for line in lines:
        fields = line.split(b"\t", 2)
        if len(fields) == 3 and fields[0].isdigit():
            yield NewRecord(fields[2], fields[1], int(fields[0]) * 1000)


def _git(repository: Path, *arguments: str) -> bytes | None:
    """Return the output of git; None if git is not installed or fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(repository), *arguments],
            capture_output=True,
            check=True,
            timeout=_GIT_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _files(folders: Iterable[Path]) -> tuple[NewRecord, ...]:
    """Return a message for every file under the folders, in the order of the directories."""
    found: dict[str, NewRecord] = {}
    for folder in folders:
        for parent, directories, names in os.walk(folder):
            if "__pycache__" in directories:
                directories.remove("__pycache__")  # written whenever Python runs
            for name in names:
                path = os.path.join(parent, name)
                try:
                    modified_ms = os.lstat(path).st_mtime_ns // 1_000_000
                except OSError:
                    continue  # gone since it was listed
                if modified_ms >= 0:
                    found[path] = NewRecord(os.fsencode(path), None, modified_ms)
                if len(found) == MESSAGES_MAXIMUM:
                    return tuple(found.values())
    return tuple(found.values())


async def ensure_topic(admin: Admin, name: str, settings: Mapping[str, str]) -> None:
    """Create a topic, unless it exists from an earlier run."""
    try:
        await admin.create_topic(name, settings=settings)
    except TopicAlreadyExists:
        return


async def send_all(producer: Producer, topic: str, records: Sequence[NewRecord]) -> None:
    """Send messages to partition 0, in this order."""
    await producer.send_batch(
        topic,
        [record.value for record in records],
        keys=[record.key for record in records],
        timestamps_ms=[record.timestamp_ms for record in records],
        headers=[record.headers for record in records],
        partition=0,
    )


async def read_all(address: str, topic: str, start: int, end: int) -> list[ConsumerRecord]:
    """Return the messages of partition 0 with offsets in [start, end)."""
    read: list[ConsumerRecord] = []
    if start >= end:
        return read
    async with Consumer(address) as consumer:
        consumer.assign(topic, 0, offset=start)
        while (consumer.position(topic) or start) < end:
            read += await consumer.fetch()
    return [record for record in read if record.offset < end]


def not_yet_stored(
    found: Sequence[NewRecord], stored: Sequence[ConsumerRecord]
) -> Sequence[NewRecord]:
    """Return the messages of `found` that no earlier run has sent: those after the last stored one.

    Empty if the stored messages are not the beginning of `found`; a message is never sent twice.
    """
    if not stored:
        return found
    if stored[0].offset > 0 or len(found) <= len(stored):
        return ()
    last, same = stored[-1], found[len(stored) - 1]
    if (last.value, last.timestamp_ms) != (same.value, same.timestamp_ms):
        return ()
    return found[len(stored) :]


async def sample_load(producer: Producer, topic: str, first_stored: asyncio.Event) -> None:
    """Send a sample of the host's load every second, for ever."""
    host = socket.gethostname().encode("utf-8", "replace")
    while True:
        try:
            await producer.send(topic, sample(), key=host)
            first_stored.set()
        except (CodedError, ConnectionFailed) as error:
            note(f"a sample of the load was not stored: {error}")
        await asyncio.sleep(_SAMPLE_SECONDS)


def sample() -> bytes:
    """Return the load averages of 1, 5 and 15 minutes, and the memory if the system reports it, as
    JSON."""
    values: dict[str, float] = {}
    with suppress(OSError):
        for name, load in zip(("load_1m", "load_5m", "load_15m"), os.getloadavg(), strict=True):
            values[name] = round(load, 2)
    with suppress(OSError):
        for line in _MEMORY.read_text("ascii", "replace").splitlines():
            name, _, rest = line.partition(":")
            if name in _MEMORY_FIELDS and rest.endswith("kB"):
                values[_MEMORY_FIELDS[name]] = int(rest.removesuffix("kB")) * 1024
    return json.dumps(values).encode()
