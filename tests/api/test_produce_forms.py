"""Repeated produce requests: recognised, and answered as if they had been decoded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.forms.produce_forms import ProduceForm, split
from horolog.protocol.api.log.produce import (
    PRODUCE,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)
from horolog.protocol.api.native.frames import (
    decode_body,
    encode_request,
    encode_response,
    open_request,
)

names = st.one_of(st.sampled_from(["a", "records", "base_offset", "log_append_time_ms"]), st.text())
versions = st.integers(PRODUCE.min_version, PRODUCE.last_version(native=True))
int32s = st.integers(0, 2**31 - 1)
int64s = st.integers(-1, 2**63 - 1)
record_sets = st.one_of(st.binary(max_size=300), st.just(b"x" * 70_000))


def request(
    records: bytes | None, topic: str = "t", partition: int = 0, acks: int = 1, timeout_ms: int = 5
) -> ProduceRequest:
    sent = ProducePartition(partition=partition, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topics=[ProduceTopic(name=topic, partitions=[sent])]
    )


def frame_of(
    version: int, correlation_id: int, client_id: str | None, sent: ProduceRequest
) -> bytes:
    return encode_request(PRODUCE, version, correlation_id, client_id, sent)[4:]


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
    head, body = open_request(frame)
    form = ProduceForm(head, decode_body(ProduceRequest, version, body))
    assert (form.topic, form.partition, form.version) == (topic, partition, version)
    if "records" in (client_id, topic):
        return  # it may be taken for none of them
    assert parts is not None
    assert parts[0] == form.around
    assert (parts[1], bytes(parts[2])) == (correlation_id, records)
    assert parts[2].readonly is not writable


@given(versions, int32s, names, int32s, int64s, int64s)
def test_answers_are_those_of_the_encoder(
    version: int, correlation_id: int, topic: str, partition: int, offset: int, time_ms: int
) -> None:
    head, body = open_request(frame_of(version, 1, "c", request(b"", topic, partition)))
    form = ProduceForm(head, decode_body(ProduceRequest, version, body))
    result = ProducePartitionResult(
        partition=partition, base_offset=offset, log_append_time_ms=time_ms
    )
    response = ProduceResponse(topics=[ProduceTopicResult(name=topic, partitions=[result])])
    expected = encode_response(correlation_id, PRODUCE, version, response)
    assert form.answers(time_ms, 0)(correlation_id, offset) == expected


@given(st.binary(max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_what_has_the_same_bytes_around_is_decoded_to_the_same(
    noise: bytes, place: int, cut: int
) -> None:
    """Whatever else is changed: where the bytes around are those of the form, so is the rest."""
    good = frame_of(2, 7, "c", request(b"abc"))
    head, body = open_request(good)
    form = ProduceForm(head, decode_body(ProduceRequest, 2, body))
    changed = good[:place] + noise + good[place + cut :]
    parts = split(changed)
    if parts is not None and parts[0] == form.around:
        head, body = open_request(changed)
        assert (head.version, head.correlation_id, head.client_id) == (2, parts[1], "c")
        assert decode_body(ProduceRequest, 2, body) == request(bytes(parts[2]))


@pytest.mark.parametrize("length", range(60))
def test_a_request_that_is_cut_off_is_none_of_these(length: int) -> None:
    frame = frame_of(2, 70_000, "c", request(b"a" * 12))
    if length < len(frame):
        assert split(frame[:length]) is None
        assert split(frame + frame[:length] if length else b"") is None


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\x94" + frame_of(2, 1, "c", request(b"a"))[1:], id="no-array-of-five"),
        pytest.param(b"\x95\x01" + frame_of(2, 1, "c", request(b"a"))[2:], id="another-request"),
        pytest.param(frame_of(2, 2**31, "c", request(b"a")), id="correlation-id-beyond-int32"),
        pytest.param(frame_of(2, -1, "c", request(b"a")), id="negative-correlation-id"),
        pytest.param(frame_of(2, 1, "c", request(None)), id="no-records"),
    ],
)
def test_what_is_none_of_these(frame: bytes) -> None:
    assert split(frame) is None
