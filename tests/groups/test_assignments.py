"""The partitions in an assignment, as Kafka's clients write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.framing import ProtocolError
from horolog.protocol.consumer_protocol import read_assignment

from .test_admin import assignment

TOPICS = st.dictionaries(
    st.text(max_size=9), st.lists(st.integers(0, 2**31 - 1), max_size=5), max_size=4
)


def read(data: bytes) -> dict[str, list[int]]:
    """Read an assignment; a topic without partitions is not in it."""
    found: dict[str, list[int]] = {}
    for topic, number in read_assignment(data):
        found.setdefault(topic, []).append(number)
    return found


@given(TOPICS)
def test_an_assignment_comes_back_and_a_part_of_it_does_not(topics: dict[str, list[int]]) -> None:
    data = assignment(topics)
    assert read(data) == {topic: numbers for topic, numbers in topics.items() if numbers}
    assert read(b"") == {}
    for size in range(1, len(data) - 4):  # without the bytes of the assignor
        with pytest.raises(ProtocolError):
            read(data[:size])


@given(st.binary(max_size=60))
def test_any_bytes_are_an_assignment_or_refused(data: bytes) -> None:
    try:
        read(data)
    except ProtocolError:
        return


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\0\0\0\1\x7f\xff",
        b"\0\0\0\0\0\1\xff\xf0\0\0\0\0",
        b"\0\0\0\0\0\1\0\1t\x7f\xff\xff\xff",
        b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff",
        b"\0\0\0\0\0\1\0\1\xff\0\0\0\0",
    ],
)
def test_what_claims_much_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(data)
