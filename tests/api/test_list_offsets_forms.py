"""Repeated searches by time: recognised, and answered as if they had been decoded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.forms.list_offsets_forms import KAFKA, NATIVE, ListOffsetsForm, has_form
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.list_offsets import (
    BY_APPEND,
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResult,
)
from horolog.protocol.api.native import frames as native

WIRES = {native: NATIVE, kafka: KAFKA}

encodings = st.sampled_from([native, kafka])
names = st.one_of(
    st.sampled_from(["a", "\xa9timestamp", "©timestamp", 'ÏwfUD3"\x11\x01']), st.text(max_size=50)
)
int32s = st.integers(0, 2**31 - 1)
int64s = st.integers(-3, 2**63 - 1)


def request(topic: str, timestamp: int, **asked: Any) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition=3, timestamp=timestamp, **asked)
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])


def frame_of(encoding: Any, version: int, number: int, client: str | None, sent: Any) -> bytes:
    frame: bytes = encoding.encode_request(LIST_OFFSETS, version, number, client, sent)
    return frame[4:]


def form_of(encoding: Any, frame: bytes) -> ListOffsetsForm:
    head, body = encoding.open_request(frame)
    asked = encoding.decode_body(ListOffsetsRequest, head.version, body)
    return ListOffsetsForm(WIRES[encoding], head, asked)


@given(encodings, st.data(), int32s, st.one_of(st.none(), names), names, int64s, int64s)
def test_as_if_they_had_been_decoded(
    encoding: Any,
    data: st.DataObject,
    correlation_id: int,
    client_id: str | None,
    topic: str,
    target: int,
    offset: int,
) -> None:
    version = data.draw(st.sampled_from(LIST_OFFSETS.versions(native=encoding.NATIVE)[1:]))
    form = form_of(encoding, frame_of(encoding, version, 1, client_id, request(topic, 5)))
    frame = frame_of(encoding, version, correlation_id, client_id, request(topic, target))
    assert WIRES[encoding].split(frame) == (form.around, correlation_id, target)
    result = ListOffsetsPartitionResult(partition=3, timestamp=target, offset=offset)
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResult(name=topic, partitions=[result])])
    expected = encoding.encode_response(correlation_id, LIST_OFFSETS, version, response)
    for _ in range(2):
        assert form.answer(correlation_id, (target, offset)) == expected


@pytest.mark.parametrize("encoding", [native, kafka])
def test_what_asks_for_something_else_is_not_taken_for_it(encoding: Any) -> None:
    """But for the time and the correlation id every byte counts."""
    frame = frame_of(encoding, 1, 1, "c", request("t", 7))
    form = form_of(encoding, frame)
    alike = 0
    for place in range(len(frame)):
        changed = bytearray(frame)
        changed[place] ^= 1
        parts = WIRES[encoding].split(changed)
        alike += parts is not None and parts[0] == form.around
    assert alike == (2 if encoding is native else 12)


def test_which_requests_have_a_form() -> None:
    assert has_form(request("t", 1))
    assert not has_form(request("t", 1, by=BY_APPEND))
    assert not has_form(ListOffsetsRequest(topics=[]))
    both = request("t", 1)
    both.topics[0].partitions *= 2
    assert not has_form(both)
    both = request("t", 1)
    both.topics *= 2
    assert not has_form(both)
