"""Lives in which operations on files fail, and what must hold from the failure on."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from horolog.protocol.errors import (
    HorologError,
    InvalidPartitions,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from horolog.storage.files import Files
from horolog.storage.log.log import Log
from horolog.testing.files import Fault, FaultyFiles, QuickFiles

from .life import DATA, Life
from .promises import LogPromise, Promise, TopicState
from .survival import check_survivor, messages_of

Refusal = HorologError | OSError


@dataclass(frozen=True)
class Failure:
    """How operations fail."""

    error: int
    """The `errno`."""
    kind: str = ""
    """Which operations; empty is all."""
    times: int = 1
    """How many fail, one after the other; -1: all from the first on."""
    written: int = 0
    """Bytes that a failing write leaves in the file."""
    late: bool = False
    """Whether what fails is done all the same."""


class StrictFiles(FaultyFiles):
    """Files that notice a sync that is tried again where one has failed."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self.unsafe: set[Path] = set()
        """Files whose last sync failed, since they were opened last."""
        self.synced_again: list[Path] = []

    def check(self, kind: str, path: Path) -> Fault | None:
        fault = super().check(kind, path)
        if kind == "unlink" and fault is None:
            self.unsafe.discard(path)
        elif kind == "sync" and path in self.unsafe:
            self.synced_again.append(path)
        elif kind == "sync" and fault is not None:
            self.unsafe.add(path)
        return fault


class FailingLife(Life):
    """A life whose process may be killed but has power: what was written stays."""

    def __init__(self, path: Path, *, promise: Promise | None = None) -> None:
        super().__init__(path, promise=promise)
        self.files = self.strict = StrictFiles(QuickFiles())
        self.data.files = self.files  # Nothing is recorded.
        self.half_cut = False
        """Whether a truncation was begun and not finished: there is less to read than there was."""

    def begin_failing(self, failure: Failure, passing: int) -> None:
        """From here on `passing` operations work before the first fails."""
        self.files.fail(
            failure.kind,
            failure.error,
            passing=passing,
            times=failure.times,
            written=failure.written,
            late=failure.late,
        )

    def open(self) -> None:
        """A restart believes what it reads: what no process remembers, none can act on."""
        self.strict.unsafe.clear()
        super().open()

    def append(
        self, topic: str, *timestamps_ms: int, partition: int = 0, value_bytes: int = 20
    ) -> None:
        log = self.log(topic, partition)
        promise = self.promises.now.logs[topic, partition]
        sent = {offset: set(messages) for offset, messages in promise.sent.items()}
        try:
            super().append(topic, *timestamps_ms, partition=partition, value_bytes=value_bytes)
        except StorageError:
            if log.failure is None:
                promise.sent = sent  # All of it was taken back.
            raise
        self._all_safe((topic, partition))

    # A change of a topic that the disk refused may have been recorded, and is made later then: by
    # the next change, which may be the same one again.

    def create(self, name: str, partitions: int = 1, **overrides: object) -> None:
        try:
            super().create(name, partitions, **overrides)
        except TopicAlreadyExists:
            texts = {key.replace("_", "."): str(value) for key, value in overrides.items()}
            if dict(self.data.directory.topics()[name].overrides) != texts:
                raise  # It is the one that was not deleted.
            self._made_before(name, partitions)

    def create_partitions(self, name: str, partitions: int) -> None:
        try:
            super().create_partitions(name, partitions)
        except InvalidPartitions:
            self._made_before(name, partitions)

    def alter(self, name: str, overrides: Mapping[str, str]) -> None:
        self.data.directory.metadata.apply_put_off()
        super().alter(name, overrides)

    def _made_before(self, name: str, partitions: int) -> None:
        entry = self.data.directory.topics()[name]
        assert entry.partitions == partitions
        now = self.promises.now
        now.topics[name] = [TopicState(partitions, dict(entry.overrides))]
        for partition in range(partitions):
            now.logs.setdefault((name, partition), LogPromise())
            self.written.setdefault((name, partition), {})
        self._note()

    def delete(self, name: str) -> None:
        try:
            super().delete(name)
        except (HorologError, OSError) as error:
            now = self.promises.now
            for key, values in now.positions.items():
                if key[1] == name:
                    values.insert(0, None)
            if not isinstance(error, UnknownTopicOrPartition):
                for partition, log in now.logs.items():
                    if partition[0] == name:
                        log.safe.clear()
                        log.end_offset = log.start_offset = log.sealed_below = 0
                self._note()
                raise
            now.topics[name] = [None]
            now.logs = {key: log for key, log in now.logs.items() if key[0] != name}
            self.written = {key: log for key, log in self.written.items() if key[0] != name}
            self._note()

    def truncate(self, topic: str, offset: int, partition: int = 0) -> None:
        self.half_cut = True
        super().truncate(topic, offset, partition)
        self.half_cut = False

    def attempt(self, step: Callable[["FailingLife"], object]) -> Refusal | None:
        """Do a step; what it was refused with, if it was."""
        try:
            step(self)
        except (HorologError, OSError) as refusal:
            return refusal
        return None

    def check_reads(self) -> None:
        """Everything that was acknowledged can be read, and nothing else."""
        if self.half_cut:
            return
        for key, written in self.written.items():
            promised = self.promises.now.logs[key].safe
            if key[0] not in self.data.directory.topics():
                assert None in self.promises.now.topics[key[0]]
            elif promised:
                log = self.data.directory.log(*key)
                found = messages_of(log)
                assert promised.items() <= found.items() <= written.items(), key
                assert log.high_watermark == log.log_end_offset

    def check_after_a_kill(self, folder: Path) -> None:
        """What the process leaves if it is killed now is what was promised."""
        folder.mkdir()
        check_survivor(self.data.copy(folder / DATA).path.parent, self.promises.now, use=False)

    def release(self) -> None:
        """Stop, well or not; no file is open after that."""
        if self.opened:
            with suppress(HorologError):
                self.data.close()
            self.opened = False
        assert self.files.open_count == 0
        assert self.strict.synced_again == []

    def failed_logs(self) -> list[Log]:
        """The open logs that take no appends any more."""
        return [log for log in self.data.directory.open_logs() if log.failure is not None]


def used_before(path: Path, prepare: Callable[[Life], None]) -> Promise:
    """Let a life happen in `path`, with nothing that fails; what is promised by the end of it."""
    life = FailingLife(path)
    prepare(life)
    return life.promises.now
