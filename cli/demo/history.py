"""Real messages with real times, out of order: commits of a repository, or files of a folder."""

import os
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...protocol.records.messages.sets import NewRecord

COMMITS_MINIMUM: Final = 1000
"""A repository with no more commits than this says too little; its files are taken instead."""

MESSAGES_MAXIMUM: Final = 50_000
"""More would only make the reader wait."""

_GIT_TIMEOUT_SECONDS: Final = 60


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
