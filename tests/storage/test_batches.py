"""Record batches (format v2) in a log: appended, read, found, cut, recovered."""

import errno
import gzip
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import lz4.frame
import pytest

from horolog.protocol.errors import (
    CorruptMessage,
    DuplicateSequenceNumber,
    HorologError,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    OutOfOrderSequenceNumber,
    StorageError,
    UnsupportedVersion,
)
from horolog.protocol.records.batch import finish_batch, read_header, write_header
from horolog.protocol.records.kernel import RecordEncoder
from horolog.protocol.records.layout import Codec
from horolog.storage.log.admitted import Appended
from horolog.storage.read import reader
from horolog.testing.logs import LogFolder, by_set, timed_set, untimed_set
from horolog.tests.followers.appending import append_copy

START_MS = 1_479_144_272_509
every_codec = pytest.mark.parametrize("codec", Codec)


def batch(
    *timestamps_ms: int,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: Codec = Codec.NONE,
    attributes: int = 0,
    value: bytes = b"v" * 50,
) -> bytearray:
    """A batch of messages with these times; `producer` is id, epoch and first sequence."""
    encoder = RecordEncoder()
    for timestamp_ms in timestamps_ms:
        encoder.add(value, b"k", timestamp_ms, (("h", b"1"), ("n", None)))
    producer_id, epoch, sequence = producer
    made = finish_batch(
        encoder,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    if attributes:
        header = read_header(made)
        write_header(made, header._replace(attributes=header.attributes | attributes))
    return made


def counted(records: int, last_delta: int, codec: Codec = Codec.NONE) -> bytearray:
    """A batch that says that it has so many records, and none in it."""
    made = batch(START_MS, codec=codec)[:61]
    header = read_header(made)._replace(record_count=records, last_offset_delta=last_delta)
    write_header(made, header._replace(size=len(made) - 12))
    return made


def packed(
    *timestamps_ms: int,
    codec: Codec,
    pack: Callable[[bytes], bytes],
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    """A batch whose records `pack` has compressed."""
    plain = batch(*timestamps_ms, producer=producer)
    made = bytearray(plain[:61] + pack(bytes(plain[61:])))
    write_header(made, read_header(plain)._replace(size=len(made) - 12, attributes=int(codec)))
    return made


def members(content: bytes) -> bytes:
    """A gzip stream of three members, one of them empty."""
    parts = content[:9], b"", content[9:]
    return b"".join(gzip.compress(one, mtime=0) for one in parts)


def send(folder: LogFolder, sequence: int, count: int = 1, *, epoch: int = 0) -> Appended:
    """What idempotent producer 7 sends."""
    times = [folder.clock.now_ms()] * count
    return folder.log.appender.append(batch(*times, producer=(7, epoch, sequence)))


def snapshots(folder: LogFolder) -> list[int]:
    return [int(name.split(".")[0]) for name in folder.names(".producers")]


@every_codec
def test_stored_as_sent(folder: LogFolder, codec: Codec) -> None:
    log = folder.open()
    sent = batch(START_MS, START_MS + 5, START_MS - 3, codec=codec)
    log.appender.append(timed_set(START_MS))
    appended = log.appender.append(bytes(sent))
    assert (appended.first_offset, appended.last_offset, appended.count) == (1, 3, 3)
    assert appended.conversion is None
    stored = folder.stored()[-len(sent) :]
    assert stored[17:] == sent[17:]  # all but the first offset and the leader's epoch
    assert folder.times() == [
        (0, START_MS),
        (1, START_MS),
        (2, START_MS + 5),
        (3, START_MS - 3),
    ]
    assert folder.records()[1].headers == (("h", b"1"), ("n", None))
    assert appended.latency is not None
    assert appended.latency.timed == 3


@every_codec
def test_an_append_time_is_that_of_all_its_messages(folder: LogFolder, codec: Codec) -> None:
    log = folder.open(message_timestamp_type="LogAppendTime")
    appended = log.appender.append(batch(5, 9, 7, codec=codec))
    assert appended.append_time_ms == START_MS
    assert folder.times() == [(0, START_MS), (1, START_MS), (2, START_MS)]
    assert folder.found(START_MS, START_MS + 1) == [(START_MS, 0), None]


@every_codec
def test_the_message_itself_is_found(folder: LogFolder, codec: Codec) -> None:
    log = folder.open(index_interval_bytes=100, segment_bytes=600)
    times = [START_MS + ms for ms in (0, 3, 1, 10, 7, 12, 11, 30, 20, 25)]
    for first in range(0, 10, 2):
        log.appender.append(batch(times[first], times[first + 1], codec=codec))
    for target in range(START_MS - 1, START_MS + 32):
        expected = next(((at, o) for o, at in enumerate(times) if at >= target), None)
        assert folder.found(target) == [expected], target
    for _ in range(2):
        folder.restart()
        assert folder.found(START_MS + 11) == [(START_MS + 12, 5)]
    largest = reader.find_largest(log).run()
    assert largest is not None
    assert largest.offset == 7


def test_a_largest_time_that_is_not_true_is_put_right(folder: LogFolder) -> None:
    log = folder.open()
    sent = batch(START_MS, START_MS + 9)
    write_header(sent, read_header(sent)._replace(max_timestamp_ms=START_MS + 1000))
    log.appender.append(sent)
    assert folder.found(START_MS + 10) == [None]
    assert folder.found(START_MS + 5) == [(START_MS + 9, 1)]


def offset_behind(folder: LogFolder, offset: int) -> list[int]:
    """The offsets that a consumer gets that fetches from `offset`."""
    data = reader.read(folder.log, offset, 1 << 20, whole_first=True).read()
    return [r.offset for r in folder.records() if r.offset >= offset] if data else []


def test_reading_from_the_middle_of_a_batch(folder: LogFolder) -> None:
    folder.open(segment_bytes=700, index_interval_bytes=50)
    for _ in range(5):
        folder.log.appender.append(batch(*[START_MS] * 4))
    for offset in range(20):
        data = reader.read(folder.log, offset, 10, whole_first=True).read()
        header = read_header(data)
        assert header.base_offset <= offset <= header.last_offset


def test_a_cut_takes_the_whole_batch(folder: LogFolder) -> None:
    log = folder.open(index_interval_bytes=0)
    for _ in range(4):
        log.appender.append(batch(*[START_MS] * 3))
    log.truncate(7)
    assert log.log_end_offset == 7
    assert [offset for offset, _ in folder.times()] == list(range(6))
    assert log.appender.append(batch(START_MS)).first_offset == 7


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (batch(START_MS, attributes=0x10), UnsupportedVersion),
        (batch(START_MS, producer=(7, 0, 0), attributes=0x10), UnsupportedVersion),
        (batch(START_MS, attributes=0x20), InvalidRecord),
        (batch(START_MS, attributes=0x08), InvalidTimestamp),
        (counted(0, 0), InvalidRecord),
        (counted(0, 2), InvalidRecord),
        (counted(0, 2, codec=Codec.ZSTD), InvalidRecord),
        (counted(0, -1), CorruptMessage),
        (counted(-1, -1), CorruptMessage),
        (batch(START_MS) + counted(0, 0), InvalidRecord),
        (batch(START_MS, producer=(7, -1, 0)), InvalidRecord),
        (batch(START_MS, producer=(7, 0, -1)), InvalidRecord),
        (batch(START_MS, producer=(-5, 0, 0)), InvalidRecord),
        (batch(1, producer=(7, 0, 0)) + batch(2, producer=(7, 0, 1)), InvalidRecord),
        (batch(START_MS) + timed_set(START_MS), InvalidRecord),
        (batch(START_MS)[:-1] + b"?", CorruptMessage),
    ],
)
def test_refused(folder: LogFolder, sent: bytes, error: type[HorologError]) -> None:
    log = folder.open()
    with pytest.raises(error):
        log.appender.append(sent)
    assert log.log_end_offset == 0
    assert log.appender.append(batch(START_MS)).first_offset == 0


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("producer", [(-1, -1, -1), (7, 0, 0)], ids=["plain", "numbered"])
def test_gzip_of_several_members_is_compressed_anew(
    folder: LogFolder, kind: str, producer: tuple[int, int, int]
) -> None:
    """librdkafka reads one member and aborts, or stops without a word."""
    log = folder.open(message_timestamp_type=kind)
    log.appender.append(timed_set(START_MS))
    times = START_MS + 1, START_MS + 9, -1
    sent = packed(*times, codec=Codec.GZIP, pack=members, producer=producer)
    appended = log.appender.append(bytes(sent))
    assert (appended.first_offset, appended.last_offset, appended.count) == (1, 3, 3)
    stored = folder.stored()[39:]
    header = read_header(stored)
    assert (header.codec, header.size_bytes) == (Codec.GZIP, len(stored))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    decompressor = zlib.decompressobj(31)
    content = decompressor.decompress(stored[61:])
    assert (decompressor.eof, decompressor.unused_data) == (True, b"")
    assert content == batch(*times)[61:]
    stamped = kind == "LogAppendTime"
    expected = [START_MS] * 3 if stamped else list(times)
    assert [record.timestamp_ms for record in folder.records()[1:]] == expected
    assert folder.records()[1].headers == (("h", b"1"), ("n", None))
    if producer[0] >= 0:
        assert log.appender.append(bytes(sent)).repeated


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"message_timestamp_type": "LogAppendTime"},
        {"compression_type": "uncompressed"},
        {"compression_type": "lz4"},
        {"compression_type": "gzip"},
    ],
    ids=str,
)
@pytest.mark.parametrize("checksum", ["content_checksum", "block_checksum"])
@pytest.mark.parametrize("producer", [(-1, -1, -1), (7, 0, 0)], ids=["plain", "numbered"])
def test_wrong_checksums_in_lz4_frames_are_refused(
    folder: LogFolder,
    settings: dict[str, Any],
    checksum: str,
    producer: tuple[int, int, int],
) -> None:
    """In every way in which a set gets into a log: clients would stop at it for ever."""

    def good(content: bytes) -> bytes:
        frame: bytes = lz4.frame.compress(content, block_linked=False, **{checksum: True})
        return frame

    def bad(content: bytes) -> bytes:
        frame = bytearray(good(content))
        frame[-6 if checksum == "block_checksum" else -2] ^= 1
        return bytes(frame)

    log = folder.open(**settings)
    sent = packed(START_MS, START_MS, codec=Codec.LZ4, pack=bad, producer=producer)
    with pytest.raises(CorruptMessage, match="checksum"):
        log.appender.append(sent)
    with pytest.raises(CorruptMessage, match="checksum"):
        log.appender.begin_append(bytes(sent))()
    (refused,) = log.appender.append_sets([bytes(sent)], goes_on=lambda: True)
    assert isinstance(refused, CorruptMessage)
    assert log.log_end_offset == 0
    sent = packed(START_MS, START_MS, codec=Codec.LZ4, pack=good, producer=producer)
    assert log.appender.append(sent).count == 2


def test_a_copy_of_a_leader_s_log_may_have_wrong_checksums(folder: LogFolder) -> None:
    """Older versions stored them; the log stays readable, by time too."""

    def bad(content: bytes) -> bytes:
        frame = lz4.frame.compress(content, block_linked=False, content_checksum=True)
        return bytes(frame[:-1] + bytes((frame[-1] ^ 1,)))

    log = folder.open()
    append_copy(log, packed(START_MS, START_MS + 5, codec=Codec.LZ4, pack=bad))
    folder.kill_and_restart(checkpointed=False)
    assert folder.times() == [(0, START_MS), (1, START_MS + 5)]
    assert folder.found(START_MS + 1) == [(START_MS + 5, 1)]


def test_too_early_and_too_late(folder: LogFolder) -> None:
    log = folder.open(max_message_time_difference_ms=1000)
    with pytest.raises(InvalidTimestamp, match="message 1 of the set"):
        log.appender.append(batch(START_MS, START_MS + 1001))
    assert log.appender.append(batch(START_MS - 1000, START_MS + 1000, -1)).count == 3


def test_several_batches_in_a_set(folder: LogFolder) -> None:
    log = folder.open()
    appended = log.appender.append(batch(1, 2) + batch(3, codec=Codec.ZSTD) + batch(4, 5))
    assert (appended.first_offset, appended.last_offset) == (0, 4)
    assert folder.times() == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


# Idempotent producers


def test_a_retry_is_stored_once(folder: LogFolder) -> None:
    folder.open(message_timestamp_type="LogAppendTime")
    first = send(folder, 0, 3)
    folder.clock.advance(10)
    second = send(folder, 3, 2)
    folder.clock.advance(10)
    again = send(folder, 0, 3)
    assert again.repeated
    assert (again.first_offset, again.last_offset, again.count) == (0, 2, 3)
    assert again.append_time_ms == first.append_time_ms == START_MS
    assert send(folder, 3, 2).append_time_ms == second.append_time_ms
    assert folder.log.log_end_offset == 5


def restarted(folder: LogFolder, how: str) -> None:
    if how == "killed":
        folder.kill_and_restart()
    elif how == "without checkpoints":
        folder.kill_and_restart(checkpointed=False)
    elif how == "stopped":
        folder.restart()


every_start = pytest.mark.parametrize(
    "how", ["going on", "stopped", "killed", "without checkpoints"]
)


@every_start
def test_producers_are_known_after_a_start(folder: LogFolder, how: str) -> None:
    folder.open(segment_bytes=300)
    for number in range(12):
        send(folder, 2 * number, 2)
    restarted(folder, how)
    for number in range(12):
        if number >= 7:
            assert send(folder, 2 * number, 2).first_offset == 2 * number
        else:
            with pytest.raises(DuplicateSequenceNumber):
                send(folder, 2 * number, 2)
    with pytest.raises(OutOfOrderSequenceNumber):
        send(folder, 25)
    assert send(folder, 24).first_offset == 24
    assert send(folder, 0, epoch=1).first_offset == 25
    with pytest.raises(InvalidProducerEpoch):
        send(folder, 25)
    assert folder.log.log_end_offset == 26


def test_a_start_reads_no_more_than_one_segment(folder: LogFolder) -> None:
    folder.open(segment_bytes=300)
    for number in range(12):
        send(folder, number)
    assert folder.log.segment_count > 3
    folder.log.flusher.flush()
    last = folder.log.segments[-1].base_offset
    assert max(snapshots(folder)) == last
    assert len(snapshots(folder)) == 2
    folder.restart()
    assert max(snapshots(folder)) == folder.log.log_end_offset


def test_no_snapshot_where_there_are_no_batches(folder: LogFolder) -> None:
    folder.open(segment_bytes=100)
    folder.append(*range(20))
    folder.restart()
    assert snapshots(folder) == []


def test_damaged_snapshots_cost_time_only(folder: LogFolder) -> None:
    folder.open(segment_bytes=300)
    for number in range(12):
        send(folder, number)
    folder.log.close()
    for name in folder.names(".producers"):
        (folder.path / name).write_bytes(b"?")
    folder.let_go()
    folder.open()
    assert folder.events.named("producer_snapshot_ignored")
    assert send(folder, 11).repeated
    assert not send(folder, 12).repeated
    folder.log.close()
    assert max(snapshots(folder)) == 13
    assert b"?" not in folder.content([".producers"]).values()


def test_a_damaged_snapshot_of_the_end_is_written_anew(folder: LogFolder) -> None:
    folder.open()
    send(folder, 0)
    folder.log.close()
    folder.let_go()
    [name] = folder.names(".producers")
    written = (folder.path / name).read_bytes()
    (folder.path / name).write_bytes(b"?")
    folder.open().close()
    assert (folder.path / name).read_bytes() == written


def test_a_cut_forgets_snapshots_behind_it(folder: LogFolder) -> None:
    log = folder.open(segment_bytes=300)
    for number in range(12):
        send(folder, number)
    log.truncate(5)
    send(folder, 5)
    log.appender.roll()
    log.flusher.flush()
    assert max(snapshots(folder)) == 6


def test_what_could_not_be_written_is_not_remembered(folder: LogFolder) -> None:
    folder.open()
    send(folder, 0)
    folder.files.fail("pwrite", errno.ENOSPC, name=".log")
    with pytest.raises(StorageError):
        send(folder, 1)
    folder.files.heal()
    appended = send(folder, 1)
    assert not appended.repeated
    assert appended.first_offset == 1


def test_sets_of_one_write_are_judged_one_after_the_other(folder: LogFolder) -> None:
    log = folder.open()
    sets: Sequence[bytes] = [
        bytes(batch(START_MS, producer=(7, 0, sequence))) for sequence in (0, 1, 0, 3, 2)
    ]
    outcomes = by_set(log.appender.append_sets(sets))
    assert [getattr(outcome, "first_offset", None) for outcome in outcomes] == [0, 1, 0, None, 2]
    assert isinstance(outcomes[3], OutOfOrderSequenceNumber)
    assert folder.usual(sets) == 0, "two of them are retries"


def numbered(*sequences: int, producer: int = 7, epoch: int = 0, count: int = 1) -> list[bytes]:
    times = [START_MS] * count
    return [bytes(batch(*times, producer=(producer, epoch, one))) for one in sequences]


def alternately(*lists: list[bytes]) -> list[bytes]:
    return [one for several in zip(*lists, strict=True) for one in several]


def another_folder(folder: LogFolder, name: str) -> None:
    """Have the next log opened elsewhere."""
    folder.let_go()
    folder.path = folder.path.with_name(name)
    folder.path.mkdir()


@pytest.mark.usefixtures("fast_path")
@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize(
    "sets",
    [
        numbered(*range(1, 9)),
        numbered(1),
        numbered(1, 3, 5, count=2),
        numbered(0, 1, 2, producer=8),
        numbered(2**31 - 2, 0, 2, producer=8, count=2),
        numbered(0, 1, 2, epoch=1),
        alternately(numbered(1, 2, 3), numbered(4, 5, 6, producer=9)),
        [*numbered(1, 2), bytes(batch(START_MS, START_MS)), *numbered(3)],
    ],
)
def test_batches_that_go_on_are_appended_together(
    folder: LogFolder, sets: list[bytes], timestamp_type: str
) -> None:
    """And leave what they leave when they are appended one by one."""
    known, contents = [], []
    for how in ("together", "each"):
        another_folder(folder, how)
        log = folder.open(message_timestamp_type=timestamp_type)
        send(folder, 0)
        if how == "together":
            (appended,) = log.appender.append_sets(sets)
            assert isinstance(appended, Appended)
            offsets = list(appended.first_offsets)
        else:
            offsets = [log.appender.append(bytearray(one)).first_offset for one in sets]
        known.append((offsets, list(log.producers.states.items())))
        log.appender.roll()
        log.flusher.flush()
        contents.append(folder.content())
    assert known[0] == known[1]
    assert contents[0] == contents[1]
    assert snapshots(folder)


@pytest.mark.parametrize(
    "sets",
    [
        numbered(0),
        numbered(1, 1),
        numbered(1, 3),
        numbered(2),
        numbered(1, 2, epoch=1),
        [*numbered(1), *numbered(0, epoch=1)],
        [*numbered(1), *numbered(0, producer=8), *numbered(0, producer=8)],
        numbered(-1),
    ],
    ids=[
        "retry",
        "retry of one of them",
        "gap",
        "gap in front",
        "epoch",
        "two epochs",
        "two",
        "-1",
    ],
)
def test_batches_that_have_to_be_judged_one_by_one(folder: LogFolder, sets: list[bytes]) -> None:
    """Also on topics where the bytes of a single set would be changed."""
    log = folder.open(message_timestamp_type="LogAppendTime")
    send(folder, 0)
    assert folder.usual(sets) < len(sets)
    outcomes = by_set(log.appender.append_sets([bytearray(one) for one in sets]))
    assert len(outcomes) == len(sets)
    stored, known = folder.stored(), list(log.producers.states.items())
    another_folder(folder, "each")
    folder.open(message_timestamp_type="LogAppendTime")
    send(folder, 0)
    for outcome, one in zip(outcomes, sets, strict=True):
        (expected,) = folder.log.appender.append_sets([one])
        if isinstance(expected, Exception):
            assert str(outcome) == str(expected)
        else:
            assert isinstance(outcome, Appended)
            assert outcome.first_offset == expected.first_offset
            assert outcome.repeated == expected.repeated
    assert (folder.stored(), list(folder.log.producers.states.items())) == (stored, known)


@pytest.mark.usefixtures("fast_path")
def test_together_they_are_not_remembered_when_they_could_not_be_written(
    folder: LogFolder,
) -> None:
    log = folder.open()
    send(folder, 0)
    before = list(log.producers.states.items())
    sets = [*numbered(1, 2), *numbered(0, producer=8)]
    folder.files.fail("pwrite", errno.ENOSPC, name=".log")
    outcomes = log.appender.append_sets(sets)
    assert [type(outcome) for outcome in outcomes] == [StorageError] * 3
    assert list(log.producers.states.items()) == before
    folder.files.heal()
    (appended,) = log.appender.append_sets(sets)
    assert isinstance(appended, Appended)
    assert appended.first_offsets == [1, 2, 3]


@pytest.mark.usefixtures("fast_path")
def test_producers_are_too_many_together(folder: LogFolder) -> None:
    log = folder.open(max_producer_ids=2)
    send(folder, 0)
    sets = [one for producer in (8, 9, 10) for one in numbered(0, 1, producer=producer)]
    assert len(log.appender.append_sets(sets)) == 1
    assert [producer for producer, _ in log.producers.states.items()] == [9, 10]


def at(timestamp_ms: int) -> bytearray:
    """A batch of one message with any time."""
    made = batch(START_MS)
    header = read_header(made)
    write_header(
        made, header._replace(base_timestamp_ms=timestamp_ms, max_timestamp_ms=timestamp_ms)
    )
    return made


@pytest.mark.usefixtures("fast_path")
@pytest.mark.parametrize(
    "sent",
    [
        batch(START_MS, codec=Codec.GZIP),
        batch(START_MS, attributes=8),
        batch(START_MS, attributes=16),
        batch(START_MS, attributes=32),
        at(-5),
        at(START_MS + 10**7),
    ],
    ids=["compressed", "append time", "transaction", "control", "no time", "too late"],
)
def test_what_is_unusual_is_left_alone(folder: LogFolder, sent: bytearray) -> None:
    log = folder.open(message_timestamp_after_max_ms=1000)
    send(folder, 0)
    before = folder.content(), log.log_end_offset
    assert folder.usual([bytes(batch(START_MS)), bytes(sent), bytes(batch(START_MS))]) == 1
    assert folder.usual([bytes(sent), bytes(batch(START_MS))]) == 0
    assert (folder.content(), log.log_end_offset) == before


@pytest.mark.usefixtures("fast_path")
def test_batches_and_messages_are_taken_together(folder: LogFolder) -> None:
    folder.open()
    send(folder, 0)
    sets = [bytes(batch(START_MS)), bytes(timed_set(START_MS)), bytes(untimed_set())]
    assert folder.usual(sets) == 3
    folder.set(message_timestamp_type="LogAppendTime")
    assert folder.usual(sets) == 2, "v0 has no place for an append time"


@pytest.mark.usefixtures("fast_path")
def test_a_largest_time_that_is_not_true_is_not_stored_together(folder: LogFolder) -> None:
    log = folder.open()
    send(folder, 0)
    sent = batch(START_MS)
    write_header(sent, read_header(sent)._replace(max_timestamp_ms=START_MS + 1))
    assert folder.usual([sent]) == 0
    folder.set(message_timestamp_type="LogAppendTime")
    assert folder.usual([sent]) == 1
    log.appender.append_sets([sent])
    assert folder.times()[-1] == (1, START_MS)


def test_a_cut_forgets_what_it_takes_away(folder: LogFolder) -> None:
    folder.open(segment_bytes=300)
    for number in range(12):
        send(folder, number)
    folder.log.flusher.flush()
    folder.log.truncate(4)
    assert all(offset <= 4 for offset in snapshots(folder))
    assert send(folder, 3).repeated
    assert send(folder, 4).first_offset == 4
    folder.log.truncate_fully(100)
    assert snapshots(folder) == []
    assert send(folder, 9).first_offset == 100


def test_silent_producers_expire(folder: LogFolder) -> None:
    folder.open(producer_id_expiration_ms=1000, retention_ms=-1)
    send(folder, 0)
    folder.clock.advance(1000)
    folder.log.expiry.maintain(folder.clock.now_ms())
    assert send(folder, 0).repeated
    folder.clock.advance(1)
    folder.log.expiry.maintain(folder.clock.now_ms())
    assert not send(folder, 0).repeated


def test_so_many_producers_are_remembered(folder: LogFolder) -> None:
    log = folder.open(max_producer_ids=3)
    for producer_id in range(4):
        log.appender.append(batch(START_MS, producer=(producer_id, 0, 0)))
    assert log.appender.append(batch(START_MS, producer=(1, 0, 0))).repeated
    assert not log.appender.append(batch(START_MS, producer=(0, 0, 0))).repeated


def test_retention_takes_old_snapshots(folder: LogFolder) -> None:
    folder.open(segment_bytes=300, retention_bytes=100, retention_ms=-1)
    for number in range(12):
        send(folder, number)
        folder.log.flusher.flush()
    (folder.path / f"{1:020d}.snapshot").write_bytes(b"Kafka's")
    folder.log.expiry.maintain(folder.clock.now_ms())
    assert folder.names(".snapshot") == []
    assert send(folder, 11).repeated
