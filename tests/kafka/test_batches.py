"""Record batches (v2) on both ports: what is produced, what readers of each version get, retries,
and readers of what is committed."""

import shutil
from itertools import product
from pathlib import Path

import pytest

from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.fetch import READ_COMMITTED, FetchPartitionResult
from horolog.protocol.api.log.list_offsets import LATEST
from horolog.protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.errors import (
    CorruptMessage,
    DuplicateSequenceNumber,
    InvalidRecord,
    OutOfOrderSequenceNumber,
    PolicyViolation,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)
from horolog.protocol.records.batch import finish_batch, read_header, write_header
from horolog.protocol.records.kernel import RecordEncoder
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set, entries, records
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.requests import (
    create_topic,
    fetch,
    list_offsets,
    message_set,
    produce,
    result,
)
from horolog.testing.wire import Wire, wire
from horolog.tests.followers.appending import append_copy

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-2.1"
HEADERS = (("trace", b"\x00\x01"), ("none", None))
SENT = [NewRecord(b"one", b"k", 1000, HEADERS), NewRecord(None, None, 1005)]

every_codec = pytest.mark.parametrize("codec", Codec)


def numbered(sequence: int, count: int = 1, epoch: int = 0, producer_id: int = 7) -> bytes:
    """What an idempotent producer sends."""
    encoder = RecordEncoder()
    for number in range(count):
        encoder.add(b"%d" % (sequence + number), None, 1000 + number)
    made = finish_batch(
        encoder, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    return bytes(made)


async def fetched(client: Wire, offset: int, version: int) -> FetchPartitionResult:
    got: FetchPartitionResult = result(await client.call(fetch("a", (0, offset)), version))
    assert got.error_code == 0, got.error_message
    return got


@every_codec
@pytest.mark.parametrize("version", range(8))
async def test_batches_in_any_version_of_produce(client: Wire, codec: Codec, version: int) -> None:
    """It is the message that tells its format, not the request."""
    sent = bytes(build_set(SENT, magic=2, codec=codec))
    assert result(await client.call(produce("a", sent), version)).base_offset == 0
    assert result(await client.call(produce("a", sent), version)).base_offset == 2
    data = (await fetched(client, 3, 10)).records
    assert data is not None
    assert [entry.magic for entry in entries(data)] == [2]
    assert data[17:] == sent[17:]
    assert read_header(data).base_offset == 2


@every_codec
@pytest.mark.parametrize("version", range(11))
async def test_readers_get_a_format_they_know(client: Wire, codec: Codec, version: int) -> None:
    await client.call(produce("a", bytes(build_set(SENT, magic=2, codec=codec))), 7)
    await client.call(produce("a", message_set(2000)), 7)
    data = (await fetched(client, 0, version)).records
    assert data is not None
    assert {entry.magic for entry in entries(data)} == {
        0 if version < 2 else 1 if version < 4 else 2
    }
    found = list(records(data, max_decompressed_bytes=1 << 20))
    assert [(one.offset, one.key, one.value) for one in found] == [
        (0, b"k", b"one"),
        (1, None, None),
    ]
    assert [one.timestamp_ms for one in found] == ([-1, -1] if version < 2 else [1000, 1005])
    assert [one.headers for one in found] == ([HEADERS, ()] if version >= 4 else [(), ()])
    behind = (await fetched(client, 2, version)).records
    assert behind is not None
    assert [entry.magic for entry in entries(behind)] == [0 if version < 2 else 1]


async def test_the_record_itself_is_found(client: Wire, own_client: Wire) -> None:
    await client.call(produce("a", bytes(build_set(SENT, magic=2, codec=Codec.GZIP))), 7)
    for connected, version in ((client, 4), (own_client, 1)):
        got = result(await connected.call(list_offsets("a", (0, 1001)), version))
        assert (got.timestamp, got.offset) == (1005, 1)


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_retry_is_stored_once(client: Wire, own_client: Wire, acks: int) -> None:
    """Also on the native port, where requests that repeat each other have a way of their own."""
    for connected, version in ((client, 7), (own_client, 3), (own_client, 3), (own_client, 3)):
        for number in range(4):
            got = result(await connected.call(produce("a", numbered(number), acks=acks), version))
            assert (got.error_code, got.base_offset) == (0, number), got.error_message
    end = result(await client.call(list_offsets("a", (0, LATEST)), 1))
    assert end.offset == 4


async def test_what_does_not_go_on_is_refused(client: Wire, own_client: Wire) -> None:
    """Kafka's clients of these versions do not know the newer code for a bad record."""
    for number in range(7):
        await client.call(produce("a", numbered(number)), 7)
    for sent, code, own_code in (
        (numbered(0), DuplicateSequenceNumber.code, DuplicateSequenceNumber.code),
        (numbered(9), OutOfOrderSequenceNumber.code, OutOfOrderSequenceNumber.code),
        (numbered(7) + numbered(8), CorruptMessage.code, InvalidRecord.code),
    ):
        got = result(await client.call(produce("a", sent), 7))
        assert (got.error_code, got.base_offset) == (code, -1)
        got = result(await own_client.call(produce("a", sent), 3))
        assert (got.error_code, got.base_offset) == (own_code, -1)


@pytest.mark.parametrize("stored", ["0.9.0", "0.10.2"])
async def test_where_numbers_cannot_be_stored_they_are_refused(client: Wire, stored: str) -> None:
    """Else a retry would be stored twice, and its producer believes that this cannot be."""
    await client.call(create_topic("a", message_format_version=stored))
    plain = bytes(build_set(SENT, magic=2))
    assert result(await client.call(produce("a", plain), 7)).base_offset == 0
    for _ in range(2):
        got = result(await client.call(produce("a", numbered(0)), 7))
        assert got.error_code == UnsupportedForMessageFormat.code
    assert result(await client.call(list_offsets("a", (0, LATEST)), 1)).offset == 2


@every_codec
async def test_a_batch_that_is_cut_off_is_refused(
    client: Wire, own_client: Wire, codec: Codec
) -> None:
    """An old set may end in the middle of a message, a batch comes whole: what was dropped of it
    would have been acknowledged."""
    whole = bytes(build_set(SENT, magic=2, codec=codec))
    for connected, version in ((client, 2), (client, 7), (own_client, 3)):
        for sent in (whole[:-1], whole[:17], whole + whole[:-1]):
            got = result(await connected.call(produce("a", sent), version))
            assert (got.error_code, got.base_offset) == (CorruptMessage.code, -1)
    assert result(await client.call(list_offsets("a", (0, LATEST)), 1)).offset == 0


@every_codec
async def test_a_batch_without_records_is_refused(
    client: Wire, own_client: Wire, codec: Codec
) -> None:
    """A producer whose set is stored nowhere has to hear of it."""
    empty = bytearray(build_set(SENT, magic=2, codec=codec)[:61])
    for last_delta, own_code in ((-1, CorruptMessage.code), (0, InvalidRecord.code)):
        header = read_header(empty)._replace(size=49, last_offset_delta=last_delta, record_count=0)
        write_header(empty, header)
        for connected, version, code in (
            (client, 2, CorruptMessage.code),
            (client, 7, CorruptMessage.code),
            (own_client, 3, own_code),
        ):
            got = result(await connected.call(produce("a", bytes(empty)), version))
            assert (got.error_code, got.base_offset) == (code, -1)
        assert "0 records" in got.error_message
    assert result(await client.call(list_offsets("a", (0, LATEST)), 1)).offset == 0


OLD_VERSIONS = range(4)
"""Of fetch: their readers do not know record batches."""


@every_codec
async def test_old_readers_begin_at_the_offset_that_they_ask_for(
    client: Wire, codec: Codec
) -> None:
    """In the middle of a batch too: some of them take what is below it for new messages."""
    sent = build_set([NewRecord(b"%d" % number) for number in range(5)], magic=2, codec=codec)
    for _ in range(2):
        await client.call(produce("a", bytes(sent)), 7)
    for version, offset in product(OLD_VERSIONS, range(10)):
        data = (await fetched(client, offset, version)).records
        assert data is not None
        found = records(data, max_decompressed_bytes=1 << 20)
        assert [(one.offset, one.value) for one in found] == [
            (number, b"%d" % (number % 5)) for number in range(offset, 10)
        ]


@every_codec
async def test_old_readers_come_past_the_removed_end_of_a_batch(
    broker: Broker, client: Wire, codec: Codec
) -> None:
    """A compaction left the first of ten records; the next batch may not fit beside it."""
    await client.call(create_topic("a"))
    first = build_set([NewRecord(b"0" * 90)], magic=2, codec=codec)
    write_header(first, read_header(first)._replace(last_offset_delta=9))
    following = build_set([NewRecord(b"10")], magic=2, codec=codec, base_offset=10)
    append_copy(broker.directory.log("a", 0), first + following)
    for version, limit in product(OLD_VERSIONS, (1, len(first), 1 << 20)):
        for offset in (1, 9, 10):
            asked = fetch("a", (0, offset), partition_max_bytes=limit)
            got = result(await client.call(asked, version))
            assert got.error_code == 0, got.error_message
            if version < 3 and limit == 1:
                assert len(got.records) == 1  # tells the reader to ask for more
                continue
            found = records(got.records, max_decompressed_bytes=1 << 20)
            assert [(one.offset, one.value) for one in found] == [(10, b"10")]


async def test_where_the_log_begins(client: Wire) -> None:
    for number in range(4):
        got = result(await client.call(produce("a", numbered(number)), 7))
        assert (got.base_offset, got.log_start_offset) == (number, 0)
    trim = DeleteRecordsPartition(partition=0, offset=2)
    await client.call(
        DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="a", partitions=[trim])])
    )
    for version, start in ((4, -1), (5, 2), (5, 2)):
        got = result(await client.call(produce("a", message_set(1000)), version))
        assert (got.error_code, got.log_start_offset) == (0, start)
    assert result(await client.call(produce("a", b"\0" * 40), 7)).log_start_offset == -1


async def test_requests_of_transactions_are_refused(client: Wire) -> None:
    request = produce("a", numbered(0))
    request.transactional_id = "mine"
    got = result(await client.call(request, 7))
    assert got.error_code == UnsupportedVersion.code


async def test_readers_of_what_is_committed(tmp_path: Path) -> None:
    name = "v2-transactions"
    shutil.copytree(GOLDEN / name / "clean", tmp_path / "data" / f"{name}-0")
    async with running_broker(
        tmp_path / "data", http_listen="off", kafka_listen="127.0.0.1:0", retention_ms=-1
    ) as broker:
        assert broker.addresses.kafka is not None
        async with wire(broker.addresses.kafka, kafka) as client:
            request = fetch(name, (0, 60))
            got = result(await client.call(request, 10))
            assert (got.aborted_transactions, got.last_stable_offset) == (None, 510)
            request.isolation_level = READ_COMMITTED
            got = result(await client.call(request, 10))
            assert got.aborted_transactions[0].first_offset == 51
            assert got.log_start_offset == 0
            asked = list_offsets(name, (0, LATEST))
            asked.isolation_level = READ_COMMITTED
            assert result(await client.call(asked, 4)).offset == 510


async def test_marks_are_no_messages_for_old_readers(tmp_path: Path) -> None:
    """They have to come past a slice that holds nothing else."""
    name = "v2-transactions"
    shutil.copytree(GOLDEN / name / "clean", tmp_path / "data" / f"{name}-0")
    async with (
        running_broker(
            tmp_path / "data", http_listen="off", kafka_listen="off", retention_ms=-1
        ) as broker,
        wire(broker.addresses.native) as client,
    ):
        offsets: list[int] = []
        offset = 0
        while True:
            request = fetch(name, (0, offset), partition_max_bytes=1)
            got = result(await client.call(request, 3))
            assert got.error_code == 0, got.error_message
            if not got.records:
                break
            found = records(got.records, max_decompressed_bytes=1 << 20, from_offset=offset)
            new = [record.offset for record in found]
            assert new
            offsets += new
            offset = new[-1] + 1
        assert len(offsets) == 500


async def test_one_producer_too_many_is_refused_by_name(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path, http_listen="off", kafka_listen="127.0.0.1:0", max_producer_states_bytes=1024
    ) as broker:
        assert broker.addresses.kafka is not None
        async with (
            wire(broker.addresses.kafka, kafka) as client,
            wire(broker.addresses.native) as own_client,
        ):
            for topic in ("a", "b"):
                got = result(await client.call(produce(topic, numbered(0)), 7))
                assert got.error_code == 0
            for connected, version in ((client, 7), (own_client, 3)):
                got = result(
                    await connected.call(produce("a", numbered(0, producer_id=8)), version)
                )
                assert got.error_code == PolicyViolation.code
            assert "max.producer.states.bytes=1024" in got.error_message
            assert broker.figures.topic("a").rejected == {"producers": 2}
            assert broker.producer_states_bytes() <= 1024
            got = result(await client.call(produce("a", numbered(1)), 7))
            assert (got.error_code, got.base_offset) == (0, 1), "who is known goes on"
            await client.call(DeleteTopicsRequest(topic_names=["b"]))
            got = result(await client.call(produce("a", numbered(0, producer_id=8)), 7))
            assert (got.error_code, got.base_offset) == (0, 2), "what is deleted makes room"


async def test_a_message_without_a_key_is_refused_by_a_compacted_topic(
    client: Wire, own_client: Wire
) -> None:
    """By the code that the client's version knows."""
    await client.call(create_topic("a", cleanup_policy="compact"))
    for magic, version in ((0, 0), (1, 2), (2, 3), (2, 7)):
        sent = [NewRecord(b"v", b"k"), NewRecord(b"v", None)]
        bad = bytes(build_set(sent, magic=magic))
        got = result(await client.call(produce("a", bad), version))
        assert (got.error_code, got.base_offset) == (CorruptMessage.code, -1)
        got = result(await own_client.call(produce("a", bad)))
        assert (got.error_code, got.base_offset) == (InvalidRecord.code, -1)
        assert "has no key" in got.error_message
    assert result(await client.call(list_offsets("a", (0, LATEST)), 1)).offset == 0
