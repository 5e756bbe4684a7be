"""A topic with transactions, which only Kafka writes: what readers of it see here."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from horolog.protocol.records.batch import batch_records, finish_batch, read_header, write_header
from horolog.protocol.records.kernel import RecordEncoder
from horolog.storage.log.log import Log
from horolog.storage.producers.log_producers import ABORT, control_mark
from horolog.storage.read import reader
from horolog.testing.logs import LogFolder, timed_set
from horolog.tests.followers.appending import append_copy

from .kafka import GOLDEN, Message, Topic, read_all

TOPIC = Topic("kafka-2.1", "v2-transactions", "clean")
TRANSACTIONAL = 0x10

every_start = pytest.mark.parametrize(
    ("clean", "lost"),
    [
        pytest.param(True, "", id="stopped"),
        pytest.param(False, "", id="killed"),
        pytest.param(False, "snapshot", id="without-snapshots"),
        pytest.param(False, "*[xt]", id="log-files-alone"),
    ],
)


def opened(path: Path, clean: bool, lost: str = "") -> LogFolder:
    folder = LogFolder(path / "v2-transactions-0")
    shutil.copytree(TOPIC.files, folder.path, dirs_exist_ok=True)
    for file in folder.path.glob(f"*.{lost}") if lost else ():
        if file.suffix != ".log":
            file.unlink()
    folder.open(clean=clean, gaps=True)
    folder.log.prepare()
    return folder


def read_committed(log: Log, max_bytes: int = 2_000) -> Iterator[Message]:
    """What a client makes of the answers to fetches with isolation level 1."""
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        found = reader.read(log, offset, max_bytes, whole_first=True, committed=True)
        told = list(reader.aborted_transactions(log, found, offset))
        data, position, aborted, following = found.read(), 0, set[int](), offset
        while position + 61 <= len(data):
            header = read_header(data, position)
            if position + header.size_bytes > len(data):
                break
            while told and told[0].first_offset <= header.last_offset:
                aborted.add(told.pop(0).producer_id)
            if header.is_control:
                if control_mark(data[position:], header) == ABORT:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                for one in batch_records(data, position, max_decompressed_bytes=1 << 24):
                    if one.offset >= offset:
                        yield one.offset, one.timestamp_ms, one.key, one.value, one.headers
            position += header.size_bytes
            following = header.last_offset + 1
        offset = following


@every_start
def test_a_committed_reader_sees_nothing_of_what_was_aborted(
    tmp_path: Path, clean: bool, lost: str
) -> None:
    folder = opened(tmp_path, clean, lost)
    assert folder.log.last_stable_offset == folder.log.high_watermark == 510
    assert list(read_committed(folder.log)) == TOPIC.committed_messages
    assert len(TOPIC.committed_messages) < len(TOPIC.messages)
    for _ in range(2):
        folder.log.appender.append(timed_set(1, magic=2))
        folder.restart()
        assert list(read_committed(folder.log))[: len(TOPIC.committed_messages)] == (
            TOPIC.committed_messages
        )
    assert list(read_all(folder.log))[: len(TOPIC.messages)] == TOPIC.messages


def test_one_byte_at_a_time(tmp_path: Path) -> None:
    """What was aborted is told with every slice that has something of it."""
    folder = opened(tmp_path, clean=True)
    assert list(read_committed(folder.log, 1)) == TOPIC.committed_messages


def append_open(log: Log, value: bytes) -> None:
    """A batch of a transaction that has not ended, as from another broker."""
    encoder = RecordEncoder()
    encoder.add(value, None, 5)
    batch = finish_batch(
        encoder,
        base_offset=log.log_end_offset,
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
    )
    write_header(batch, read_header(batch)._replace(attributes=TRANSACTIONAL))
    append_copy(log, batch)


def test_a_committed_reader_stops_at_a_transaction_that_has_not_ended(tmp_path: Path) -> None:
    log = opened(tmp_path, clean=True).log
    log.appender.append(timed_set(1, magic=2))
    append_open(log, b"open")
    log.appender.append(timed_set(2, magic=2))
    assert (log.last_stable_offset, log.high_watermark) == (511, 513)
    assert [offset for offset, *_ in read_committed(log)][-1] == 510
    assert [offset for offset, *_ in read_all(log)][-2:] == [511, 512]
    assert not reader.readable_bytes(log, 511, committed=True)


@pytest.mark.parametrize("restart", [LogFolder.restart, LogFolder.kill_and_restart])
@pytest.mark.parametrize("max_bytes", [1, 2_000])
def test_a_transaction_that_can_never_end_holds_nobody_up(
    tmp_path: Path, restart: Callable[[LogFolder], Log], max_bytes: int
) -> None:
    """One that was left open when the directory was taken over."""
    folder = opened(tmp_path, clean=True)
    append_open(folder.log, b"open")
    restart(folder).prepare()
    (said,) = folder.events.named("open_transaction_aborted")
    assert (said["topic"], said["partition"]) == ("t", 0)
    assert (said["producer_id"], said["first_offset"]) == (9, 510)
    for _ in range(2):
        folder.log.appender.append(timed_set(folder.log.log_end_offset, magic=2))
        log = folder.log
        assert log.last_stable_offset == log.high_watermark == log.log_end_offset
        later = range(511, log.log_end_offset)
        committed = list(read_committed(log, max_bytes))
        assert committed[: len(TOPIC.committed_messages)] == TOPIC.committed_messages
        found = [offset for offset, *_ in committed[len(TOPIC.committed_messages) :]]
        assert found == list(later)
        assert [offset for offset, *_ in read_all(log)][-len(later) - 1 :] == [510, *later]
        folder.events.seen.clear()
        folder.restart().prepare()
        assert folder.events.named("open_transaction_aborted") == []


def test_the_data_is_there() -> None:
    assert (GOLDEN / "kafka-2.1" / "v2-transactions" / "expected.json").exists()
