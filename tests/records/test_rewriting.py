"""Plain entries written anew, in both forms, against a rewriter of obvious steps."""

import zlib
from struct import pack, unpack_from

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.records.kernel import plain_end, rewrite
from horolog.protocol.records.kernel.terms import OWN
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_message, build_set
from horolog.tests.properties.examples import examples

INT64_MAX = 2**63 - 1

contents = st.one_of(st.none(), st.binary(max_size=40), st.just(bytes(700)))
messages = st.builds(
    lambda magic, key, value, attributes, time_ms: build_message(
        key, value, magic=magic, attributes=attributes, timestamp_ms=time_ms if magic else -1
    ),
    st.integers(0, 1),
    contents,
    contents,
    st.sampled_from([0, 8, 0x10, 0xF8]),
    st.integers(-1, INT64_MAX),
)


def in_entries(sent: list[bytes], first_offset: int = 0) -> bytes:
    return b"".join(
        pack(">qi", offset, len(message)) + message
        for offset, message in enumerate(sent, first_offset)
    )


def plainly(message: bytes, magic: int, stamp_ms: int) -> bytes:
    """One message as it has to become."""
    own_magic, attributes = message[4], message[5]
    wanted = own_magic if magic == OWN else magic
    if wanted == own_magic and (wanted == 0 or (stamp_ms == OWN and not attributes & 8)):
        return message
    rest = message[14 if own_magic else 6 :]
    if wanted == 0:
        body = pack(">BB", 0, attributes & 0xF0) + rest
    elif stamp_ms != OWN:
        body = pack(">BBq", 1, attributes & 0xF0 | 8, stamp_ms) + rest
    else:
        time_ms = unpack_from(">q", message, 6)[0] if own_magic else -1
        body = pack(">BBq", 1, attributes & 0xF0, time_ms) + rest
    return pack(">I", zlib.crc32(body)) + body


@examples(100)
@given(
    st.lists(messages, max_size=12),
    st.sampled_from([OWN, 0, 1]),
    st.sampled_from([OWN, 0, 2**40]),
    st.sampled_from([OWN, 0, INT64_MAX]),
    st.binary(max_size=3),
)
def test_entries_become_what_they_have_to(
    sent: list[bytes], magic: int, first_offset: int, stamp_ms: int, before: bytes
) -> None:
    data = b"in front" + in_entries(sent, 70) + b"behind"
    target = bytearray(before)
    changed = rewrite(target, data, 8, len(data) - 6, magic, first_offset, -3, stamp_ms)
    expected = [plainly(message, magic, stamp_ms) for message in sent]
    assert target == before + in_entries(expected, 67 if first_offset == OWN else first_offset)
    assert changed == sum(magic not in (OWN, message[4]) for message in sent)


def test_what_cannot_be_good_is_refused_and_leaves_no_trace() -> None:
    good = bytes(build_set([NewRecord(b"value", timestamp_ms=5)] * 2))
    second = len(good) // 2
    bad = {
        "cut": good[:-1],
        "a head alone": good[: second + 12],
        "part of a head": good[: second + 5],
        "negative size": good[: second + 8] + b"\xff\xff\xff\xff" + good[second + 12 :],
        "too small for a time": good[: second + 8] + pack(">i", 21) + good[second + 12 :],
        "too large": good[: second + 8] + pack(">i", 2**31 - 1) + good[second + 12 :],
        "later format": good[: second + 16] + b"\x02" + good[second + 17 :],
    }
    for what, data in bad.items():
        target = bytearray(b"before")
        with pytest.raises(ValueError, match=f"the entry at byte {second} is no good"):
            rewrite(target, data, 0, len(data), 0, OWN, 0, OWN)
        assert target == b"before", what


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (0, 1000), (5, 4)])
def test_bytes_that_are_not_there_are_refused(start: int, end: int) -> None:
    data = bytes(build_set([NewRecord(b"value")]))
    with pytest.raises(ValueError, match="no bytes"):
        rewrite(bytearray(), data, start, end, 0, OWN, 0, OWN)
    if start <= end:
        with pytest.raises(ValueError, match="no bytes"):
            plain_end(data, start, end)


@given(st.lists(st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]), max_size=6))
def test_plain_entries_end_at_the_first_wrapper(codecs: list[Codec]) -> None:
    sets = [bytes(build_set([NewRecord(b"v" * 30)], codec=codec)) for codec in codecs]
    data = b"".join(sets)
    plain = codecs.index(Codec.LZ4) if Codec.LZ4 in codecs else len(codecs)
    assert plain_end(data, 0, len(data)) == sum(map(len, sets[:plain]))


def test_plain_end_refuses_what_cannot_be_good() -> None:
    data = bytes(build_set([NewRecord(b"value")]))
    for bad in (data[:-1], data[:5], data[:8] + bytes(4) + data[12:]):
        with pytest.raises(ValueError, match="the entry at byte 0 is no good"):
            plain_end(bad, 0, len(bad))
