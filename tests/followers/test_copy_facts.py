"""What goes with a stretch, as bytes: nothing is lost on the way, and nothing is believed."""

from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.storage.log.epoch_history import EpochStart
from horolog.storage.replica.copy_facts import SPANS_MAX, CopyFacts, MalformedFacts

offsets = st.integers(0, 2**40)
file_times = st.one_of(st.just(-1), st.integers(0, 2**62))


@st.composite
def facts(draw: st.DrawFn) -> CopyFacts:
    offset = draw(offsets)
    rises = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 2**33)), max_size=4))
    epochs = [EpochStart(draw(st.integers(-1, 5)), offset)]
    for rise, distance in rises:
        epochs.append(EpochStart(epochs[-1].epoch + rise, epochs[-1].start_offset + distance))
    times = st.sampled_from(
        [
            st.integers(1_479_144_272_000, 1_479_144_272_100),
            st.integers(-1, 2**63 - 1),
            st.just(-1),
        ]
    ).flatmap(lambda one: st.lists(one, max_size=6))
    spans, at = [], offset
    for ms in draw(times):
        spans.append((at, ms))
        at += draw(st.sampled_from([1, 7, 300, 70_000, 2**33]))
    return CopyFacts(
        offset,
        draw(offsets),
        draw(offsets),
        draw(offsets),
        draw(st.booleans()),
        tuple(epochs),
        tuple(spans),
        at,
        draw(file_times),
        draw(file_times),
        draw(file_times),
    )


@given(facts())
def test_nothing_is_lost(sent: CopyFacts) -> None:
    assert CopyFacts.decode(sent.encode()) == sent
    assert CopyFacts.decode(memoryview(sent.encode())) == sent


@given(facts(), st.data())
def test_hostile_bytes_are_refused_or_good(sent: CopyFacts, data: st.DataObject) -> None:
    encoded = bytearray(sent.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(encoded)))
    for hostile in (bytes(encoded), bytes(encoded[:cut]), bytes(encoded) + b"\0"):
        try:
            got = CopyFacts.decode(hostile)
        except MalformedFacts:
            continue
        got.check()


@given(st.binary(max_size=200))
def test_no_bytes_make_decoding_fail_otherwise(content: bytes) -> None:
    try:
        CopyFacts.decode(content)
    except MalformedFacts:
        return


def of_times(times: list[int], first_offset: int = 10, sets: int = 1) -> CopyFacts:
    places = list(accumulate([sets] * len(times), initial=first_offset))
    return CopyFacts(
        first_offset,
        0,
        0,
        0,
        False,
        (EpochStart(3, first_offset),),
        tuple(zip(places, times, strict=False)),
        places[-1],
    )


def test_a_span_takes_two_bytes_as_a_rule() -> None:
    random = Random(1)
    now, times = 1_479_144_272_509, []
    for _ in range(1000):
        now += random.randint(1, 100)
        times.append(now)
    assert len(of_times(times).encode()) - len(of_times(times[:1]).encode()) == 2 * 999


@pytest.mark.parametrize(("more", "good"), [(0, True), (1, False)])
def test_spans_are_bounded(more: int, good: bool) -> None:
    encoded = of_times(list(range(SPANS_MAX + more))).encode()
    if good:
        assert len(CopyFacts.decode(encoded).append_times) == SPANS_MAX
        return
    with pytest.raises(MalformedFacts, match=str(SPANS_MAX)):
        CopyFacts.decode(bytes(encoded))


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        pytest.param(0, b"\x01", "version 1", id="version"),
        pytest.param(1, b"\x02", "flags 2", id="flags"),
        pytest.param(2, b"\xff" * 8, "offset", id="offset"),
        pytest.param(10, b"\x80" + bytes(7), "offset", id="base"),
        pytest.param(42, b"\xff\xff\xff\xff\xff\xff\xff\xfe", "file time", id="file-time"),
        pytest.param(58, b"\x7f\xff\xff\xff", "epochs", id="many-epochs"),
        pytest.param(58, b"\xff\xff\xff\xff", "epochs", id="negative-epochs"),
        pytest.param(62, b"\xff\xff\xff\xfe", "epoch -2", id="epoch"),
        pytest.param(82, b"\x7f\xff\xff\xff", "spans", id="many-spans"),
        pytest.param(82, b"\xff\xff\xff\xff", "spans", id="negative-spans"),
        pytest.param(86, b"\x03", "3 and", id="width"),
        pytest.param(74, bytes(8), "append times", id="told-end"),
    ],
)
def test_what_cannot_be_is_refused(at: int, value: bytes, words: str) -> None:
    encoded = bytearray(of_times([5, 6, 7]).encode())
    encoded[at : at + len(value)] = value
    with pytest.raises(MalformedFacts, match=words):
        CopyFacts.decode(bytes(encoded))
