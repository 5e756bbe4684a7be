"""Repeated produce requests in Kafka's encoding: recognised, and answered as if decoded."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.forms.kafka_produce_forms import KafkaProduceForm, split
from horolog.protocol.api.kafka.frames import (
    decode_body,
    encode_request,
    encode_response,
    open_request,
)
from horolog.protocol.api.log.produce import (
    PRODUCE,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)

names = st.one_of(st.sampled_from(["a", "wwwwwwwww", "ffffffff"]), st.text(max_size=50))
versions = st.integers(PRODUCE.min_version, PRODUCE.last_version(native=False))
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-1, 2**63 - 1)
record_sets = st.one_of(st.binary(max_size=300), st.just(b"x" * 70_000))


def request(
    records: bytes | None, topic: str = "t", partition: int = 0, transaction: str | None = None
) -> ProduceRequest:
    sent = ProducePartition(partition=partition, records=records)
    return ProduceRequest(
        transactional_id=transaction,
        acks=1,
        timeout_ms=5,
        topics=[ProduceTopic(name=topic, partitions=[sent])],
    )


def frame_of(
    version: int, correlation_id: int, client_id: str | None, sent: ProduceRequest
) -> bytes:
    return encode_request(PRODUCE, version, correlation_id, client_id, sent)[4:]


def form_of(frame: bytes, version: int) -> KafkaProduceForm:
    head, body = open_request(frame)
    return KafkaProduceForm(head, decode_body(ProduceRequest, version, body))


@given(versions, int32s, st.one_of(st.none(), names), names, int32s, record_sets, st.booleans())
def test_a_request_is_split_where_its_parts_meet(
    version: int,
    correlation_id: int,
    client_id: str | None,
    topic: str,
    partition: int,
    records: bytes,
    writable: bool,
) -> None:
    frame = frame_of(version, correlation_id, client_id, request(records, topic, partition))
    parts = split(bytearray(frame) if writable else frame)
    form = form_of(frame, version)
    assert (form.topic, form.partition, form.version) == (topic, partition, version)
    assert parts is not None
    assert parts[0] == form.around
    assert (parts[1], bytes(parts[2])) == (correlation_id, records)
    assert parts[2].readonly is not writable


@given(versions, int32s, names, int32s, int64s, int64s, int64s)
def test_answers_are_those_of_the_encoder(
    version: int,
    correlation_id: int,
    topic: str,
    partition: int,
    offset: int,
    time_ms: int,
    log_start: int,
) -> None:
    form = form_of(frame_of(version, 1, "c", request(b"", topic, partition)), version)
    result = ProducePartitionResult(
        partition=partition,
        base_offset=offset,
        log_append_time_ms=time_ms,
        log_start_offset=log_start,
    )
    response = ProduceResponse(topics=[ProduceTopicResult(name=topic, partitions=[result])])
    expected = encode_response(correlation_id, PRODUCE, version, response)
    other = form.answers(time_ms ^ 1, log_start ^ 1)
    for _ in range(2):
        assert form.answers(time_ms, log_start)(correlation_id, offset) == expected
    if version >= 2:  # Older ones tell no time.
        assert other(correlation_id, offset) != expected


OTHERS: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda frame: b"",
    "cut": lambda frame: frame[:-1],
    "beginning": lambda frame: frame[:9],
    "longer": lambda frame: (len(frame) - 3).to_bytes(4, "big") + frame[4:] + b"\0",
    "topic": lambda frame: encode_request(PRODUCE, frame[7], 5, "c", request(b"r", "other")),
    "transaction": lambda frame: encode_request(PRODUCE, 3, 5, "c", request(b"r", "t", 0, "t")),
}


@given(
    versions,
    st.lists(st.tuples(int32s, record_sets), max_size=5),
    st.integers(0, 6),
    st.sampled_from(sorted(OTHERS)),
)
def test_a_burst_is_what_repeats_at_the_front(
    version: int, sent: list[tuple[int, bytes]], most: int, other: str
) -> None:
    frames = [encode_request(PRODUCE, version, number, "c", request(data)) for number, data in sent]
    repeated = encode_request(PRODUCE, version, 1, "c", request(b"records"))
    form = form_of(repeated[4:], version)
    received = bytearray(b"".join([*frames, OTHERS[other](repeated)]))
    end, numbers, record_sets = form.burst(memoryview(received), most)
    assert end == sum(map(len, frames[:most]))
    assert list(zip(numbers, map(bytes, record_sets), strict=True)) == sent[:most]
    assert not any(records.readonly for records in record_sets)


@given(versions, st.data())
def test_any_byte_changed_ends_a_burst(version: int, data: st.DataObject) -> None:
    frame = encode_request(PRODUCE, version, 7, "me", request(b"records"))
    form = form_of(frame[4:], version)
    received = bytearray(frame * 3)
    place = data.draw(st.integers(0, len(received) - 1))
    received[place] ^= data.draw(st.integers(1, 255))
    number, in_frame = divmod(place, len(frame))
    end, numbers, record_sets = form.burst(memoryview(received), 9)
    if 8 <= in_frame < 12 or in_frame >= len(frame) - len(b"records"):
        assert end == len(received)
        changed = numbers[number], bytes(record_sets[number])
        assert changed != (7, b"records")
        assert len(numbers) == len(record_sets) == 3
    else:
        assert (end, len(numbers)) == (number * len(frame), number)


@given(versions, st.data())
def test_any_byte_changed_is_another_form_or_none(version: int, data: st.DataObject) -> None:
    frame = bytearray(frame_of(version, 7, "me", request(b"records")))
    form = form_of(bytes(frame), version)
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))
    parts = split(frame)
    behind = len(frame) - len(b"records")
    if parts is not None and not 4 <= place < 8 and place < behind:
        assert parts[0] != form.around


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(frame_of(3, 1, None, request(b"r", transaction="t")), id="transaction"),
        pytest.param(frame_of(2, 1, None, request(None)), id="null"),
        pytest.param(frame_of(2, 1, None, request(b"r"))[:-1], id="cut"),
        pytest.param(frame_of(2, 1, None, request(b"r")) + b"\0", id="more"),
        pytest.param(b"", id="empty"),
        pytest.param(b"\0\0\0\2", id="head"),
        pytest.param(b"\0\1" + frame_of(2, 1, None, request(b"r"))[2:], id="other-request"),
    ],
)
def test_what_is_none_of_them(frame: bytes) -> None:
    assert split(frame) is None
