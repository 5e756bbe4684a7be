"""The demo's messages: commits of a repository or files of a folder, with real times and out of
order, and samples of how busy this host is; brought to the broker and read back."""

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
"""A repository with no more commits than this says too little; its files are taken instead."""

MESSAGES_MAXIMUM: Final = 50_000
"""More would only make the reader wait."""

_GIT_TIMEOUT_SECONDS: Final = 60

_MEMORY: Final = Path("/proc/meminfo")
_MEMORY_FIELDS: Final = {"MemTotal": "memory_total_bytes", "MemAvailable": "memory_available_bytes"}

_SAMPLE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class History:
    """Messages in the order they were found, and what they are."""

    topic: str
    what: str
    """As in "... holds 5,000 messages: <what>"."""
    records: tuple[NewRecord, ...]


def find_history(folder: Path | None) -> History:
    """The history of `folder`; without one, of this program's repository when it is in one with
    enough commits, else of the running Python installation. Raises `OSError`.
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
    """Every commit, first ones first: hash and subject; empty where there is no repository."""
    top = _git(repository, "rev-parse", "--show-toplevel")
    if top is None or Path(os.fsdecode(top.strip())).resolve() != repository.resolve():
        return ()  # inside some other repository, which is not the one meant
    log = _git(repository, "log", "--reverse", "-z", "--format=%at%x09%h%x09%s")
    return tuple(_commit_records(log.split(b"\0"))) if log else ()


def _commit_records(lines: Iterable[bytes]) -> Iterator[NewRecord]:
    for line in lines:
        fields = line.split(b"\t", 2)
        if len(fields) == 3 and fields[0].isdigit():
            yield NewRecord(fields[2], fields[1], int(fields[0]) * 1000)


def _git(repository: Path, *arguments: str) -> bytes | None:
    """What git prints; None when it is not installed or has nothing to say."""
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
    """Every file under the folders, as the directories list them."""
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
    """Create a topic unless an earlier run did."""
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
    """The messages of partition 0 from offset `start` up to, without, `end`."""
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
    """What of `found` an earlier run has not sent: what follows the last message stored.

    Nothing when the two have grown apart; a message is never sent twice.
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
    """Load averages over 1, 5 and 15 minutes, and memory where the system reports it; as JSON."""
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
