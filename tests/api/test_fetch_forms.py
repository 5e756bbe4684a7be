"""Repeated fetch requests: recognised, and answered as if they had been decoded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.forms.fetch_forms import KAFKA, NATIVE, FetchForm, has_form
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.fetch import (
    FETCH,
    READ_COMMITTED,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResult,
)
from horolog.protocol.api.native import frames as native

WIRES = {native: NATIVE, kafka: KAFKA}

encodings = st.sampled_from([native, kafka])
names = st.one_of(
    st.sampled_from(["a", "¬fetch_offset", 'wfUD3"\x11\x01', 'ÏwfUD3"\x11\x02']),
    st.text(max_size=50),
)
int32s = st.integers(0, 2**31 - 1)
int64s = st.integers(-1, 2**63 - 1)
isolation_levels = st.sampled_from([0, READ_COMMITTED])


def versions_of(encoding: Any) -> range:
    return FETCH.versions(native=encoding.NATIVE)


def request(topic: str = "t", offset: int = 0, **asked: Any) -> FetchRequest:
    wanted = FetchPartition(partition=3, fetch_offset=offset, partition_max_bytes=70_000)
    return FetchRequest(topics=[FetchTopic(name=topic, partitions=[wanted])], **asked)


def frame_of(encoding: Any, version: int, number: int, client: str | None, sent: Any) -> bytes:
    frame: bytes = encoding.encode_request(FETCH, version, number, client, sent)
    return frame[4:]


def form_of(encoding: Any, frame: bytes) -> FetchForm:
    head, body = encoding.open_request(frame)
    return FetchForm(WIRES[encoding], head, encoding.decode_body(FetchRequest, head.version, body))


@given(encodings, st.data(), int32s, st.one_of(st.none(), names), names, int64s, st.booleans())
def test_a_request_is_split_around_its_offset(
    encoding: Any,
    data: st.DataObject,
    correlation_id: int,
    client_id: str | None,
    topic: str,
    offset: int,
    writable: bool,
) -> None:
    version = data.draw(st.sampled_from(versions_of(encoding)))
    first = frame_of(encoding, version, 1, client_id, request(topic, 5))
    frame = frame_of(encoding, version, correlation_id, client_id, request(topic, offset))
    form = form_of(encoding, first)
    parts = WIRES[encoding].split(bytearray(frame) if writable else frame)
    assert parts == (form.around, correlation_id, offset)
    assert (form.version, form.topic) == (version, topic)


@given(encodings, st.data(), names, int32s, isolation_levels, st.lists(st.tuples(*[int64s] * 3)))
def test_answers_are_those_of_the_encoder(
    encoding: Any,
    data: st.DataObject,
    topic: str,
    correlation_id: int,
    isolation_level: int,
    told: list[tuple[int, int, int]],
) -> None:
    version = data.draw(st.sampled_from(versions_of(encoding)))
    asked = request(topic, isolation_level=isolation_level)
    form = form_of(encoding, frame_of(encoding, version, 1, "c", asked))
    for high_watermark, last_stable_offset, log_start_offset in told:
        records = bytes(data.draw(st.sampled_from([0, 1, 255, 256, 65_535, 65_536])))
        committed = version >= 4 and isolation_level == READ_COMMITTED
        result = FetchPartitionResult(
            partition=3,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            aborted_transactions=[] if committed else None,
            records=records,
        )
        response = FetchResponse(topics=[FetchTopicResult(name=topic, partitions=[result])])
        expected = encoding.encode_response(correlation_id, FETCH, version, response)
        numbers = high_watermark, last_stable_offset, log_start_offset
        assert form.answer_head(correlation_id, numbers, len(records)) + records == expected


@given(encodings, st.binary(max_size=80))
def test_other_bytes_are_split_or_not_but_never_fail(encoding: Any, data: bytes) -> None:
    begin = frame_of(encoding, 4, 1, "c", request())
    for frame in (data, begin[: len(data)], begin[:-1] + data, begin[:20] + data):
        WIRES[encoding].split(frame)


@pytest.mark.parametrize("encoding", [native, kafka])
def test_what_asks_for_something_else_is_not_taken_for_it(encoding: Any) -> None:
    """But for the offset and the correlation id every byte counts."""
    version = versions_of(encoding)[-1]
    frame = frame_of(encoding, version, 1, "c", request(offset=7))
    form = form_of(encoding, frame)
    alike = 0
    for place in range(len(frame)):
        changed = bytearray(frame)
        changed[place] ^= 1
        parts = WIRES[encoding].split(changed)
        alike += parts is not None and parts[0] == form.around
    assert alike == (2 if encoding is native else 12)


def test_which_requests_have_a_form() -> None:
    assert has_form(request())
    assert not has_form(request(include_append_times=True))
    assert has_form(request(session_id=-1, session_epoch=-1))
    assert not has_form(request(session_id=1, session_epoch=1))
    assert not has_form(FetchRequest(topics=[]))
    both = request()
    both.topics[0].partitions *= 2
    assert not has_form(both)
    both = request()
    both.topics *= 2
    assert not has_form(both)
