"""Snapshots of producer states, ours and Kafka's."""

from pathlib import Path
from random import Random

import pytest

from horolog.storage.files import SystemFiles
from horolog.storage.producers.log_producers import aborted_below, numbered_batches, take_batch
from horolog.storage.producers.producer_snapshots import (
    MalformedSnapshot,
    PendingSnapshot,
    decode_kafka_snapshot,
    decode_snapshot,
    encode_snapshot,
    newest_first,
    parse_snapshot_name,
)
from horolog.storage.producers.producer_states import (
    AbortedSpan,
    KnownProducer,
    ProducerBatch,
    ProducerStates,
)

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-2.1"
SEEN_MS = 77


def some_states() -> ProducerStates:
    states = ProducerStates()
    for number in range(7):
        states.add(1, 0, ProducerBatch(10 * number, 10, 1000 + 10 * number, -1), seen_ms=number)
    states.add(2**62 - 1, 32767, ProducerBatch(2**31 - 1, 2, 2**62, 99), seen_ms=50, opens=True)
    states.end_transaction(3, 4, 2000, 60, aborted=True)
    states.aborted.append(AbortedSpan(3, 5, 9))
    return states


def content(
    states: ProducerStates,
) -> tuple[list[tuple[int, KnownProducer]], list[AbortedSpan]]:
    return list(states.items()), states.aborted


def test_a_snapshot_holds_all_that_is_known() -> None:
    states = some_states()
    read = decode_snapshot(encode_snapshot(states, 3000), 3000)
    assert content(read) == content(states)
    assert read.open_offset == states.open_offset == 2**62


def test_an_empty_one() -> None:
    assert content(decode_snapshot(encode_snapshot(ProducerStates(), 0), 0)) == ([], [])


def test_of_another_offset() -> None:
    with pytest.raises(MalformedSnapshot):
        decode_snapshot(encode_snapshot(some_states(), 3000), 3001)


def test_damaged_ones_are_not_believed() -> None:
    data = encode_snapshot(some_states(), 3000)
    for at in range(len(data)):
        with pytest.raises(MalformedSnapshot):
            decode_snapshot(data[:at], 3000)
        with pytest.raises(MalformedSnapshot):
            decode_snapshot(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :], 3000)
    random = Random(1)
    for size in range(100):
        with pytest.raises(MalformedSnapshot):
            decode_snapshot(random.randbytes(size), 3000)
        with pytest.raises(MalformedSnapshot):
            decode_kafka_snapshot(b"\0\1" + random.randbytes(size), SEEN_MS)


def test_names() -> None:
    ours, of_kafka = (parse_snapshot_name(f"{7:020d}{end}") for end in (".producers", ".snapshot"))
    assert ours is not None
    assert of_kafka is not None
    assert (ours.offset, ours.of_kafka, of_kafka.of_kafka) == (7, False, True)
    for name in ("7.producers", f"{7:020d}.producers.tmp", f"{10**19:020d}.producers", "7"):
        assert parse_snapshot_name(name) is None


def test_superfluous_ones_go_when_a_new_one_is_written(tmp_path: Path) -> None:
    (tmp_path / f"{5:020d}.snapshot").write_bytes(b"Kafka's own stay")
    for offset, superfluous in ((5, []), (20, []), (30, [5]), (40, [5, 20])):
        PendingSnapshot(tmp_path, offset, some_states(), superfluous).write(SystemFiles())
    names = [name for name, _ in newest_first(SystemFiles(), tmp_path)]
    assert [(name.offset, name.of_kafka) for name in names] == [
        (40, False),
        (30, False),
        (5, True),
    ]


def test_one_that_is_withdrawn_is_not_written(tmp_path: Path) -> None:
    pending = PendingSnapshot(tmp_path, 10, ProducerStates(), [])
    pending.withdraw()
    pending.write(SystemFiles())
    assert not list(tmp_path.iterdir())


def scanned(folder: Path, end_offset: int = 1 << 62) -> ProducerStates:
    """What Kafka's log files say, batch by batch, below `end_offset`."""
    states = ProducerStates()
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()

        def read(size: int, at: int, data: bytes = data) -> bytes:
            return data[at : at + size]

        for found in numbered_batches(read, 0, len(data)):
            if found is not None and found[0].base_offset < end_offset:
                take_batch(states, found[0], read, found[1], SEEN_MS)
    return states


SNAPSHOTS = sorted(GOLDEN.glob("*/clean/*.snapshot"))


def test_the_data_is_there() -> None:
    assert len(SNAPSHOTS) > 15


@pytest.mark.parametrize(
    "path", SNAPSHOTS, ids=[f"{path.parent.parent.name}-{int(path.stem)}" for path in SNAPSHOTS]
)
def test_what_kafka_remembered_is_what_its_log_says(path: Path) -> None:
    """Kafka remembers the last batch of each producer."""
    offset = int(path.stem)
    expected = scanned(path.parent, offset)
    read = decode_kafka_snapshot(path.read_bytes(), SEEN_MS)
    assert read.open_offset == expected.open_offset
    told = dict(read.items())
    assert told.keys() == dict(expected.items()).keys()
    for producer_id, producer in expected.items():
        assert told[producer_id].epoch == producer.epoch
        assert told[producer_id].batches[-1].next_sequence == producer.batches[-1].next_sequence
    assert aborted_below(SystemFiles(), path.parent, offset) == expected.aborted


def test_kafka_s_transactions() -> None:
    states = scanned(GOLDEN / "v2-transactions" / "clean")
    assert states.open_offset is None
    assert len(states.aborted) == 3
    assert all(transaction.first_offset < transaction.last_offset for transaction in states.aborted)
