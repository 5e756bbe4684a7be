"""Frames out of a stream: in whatever pieces the bytes come."""

from collections.abc import Callable, Iterable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.framing import FrameReader, ProtocolError
from horolog.protocol.limits import GROWTH_FACTOR, ONE_READ_BYTES, SHARED_SLAB_BYTES, SLAB_BYTES

LIMIT = 100 * 1024 * 1024


def framed(*payloads: bytes) -> bytes:
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


def feed(reader: FrameReader, data: bytes) -> list[bytes]:
    """Receive `data` as a socket would: as much at a time as the buffer takes.

    Raises the fault of the reader.
    """
    frames: list[bytes | bytearray] = []
    while data:
        buffer = reader.get_buffer(-1)
        count = min(len(buffer), len(data))
        assert count > 0
        buffer[:count] = data[:count]
        # `buffer` is alive here, as it is inside asyncio's loop.
        frames += reader.received(count)
        if reader.fault is not None:
            raise reader.fault
        data = data[count:]
    return [bytes(frame) for frame in frames]


def feed_all(reader: FrameReader, pieces: Iterable[bytes]) -> list[bytes]:
    return [frame for piece in pieces for frame in feed(reader, piece)]


SAMPLES = [
    pytest.param([b"a"], id="one byte"),
    pytest.param([b"hello"], id="one"),
    pytest.param([b"first", b"second"], id="two"),
    pytest.param([bytes([n]) * (n + 1) for n in range(60)], id="many"),
    pytest.param([b"\x00\x00\x00\x01" * 5], id="lengths inside"),
]


@pytest.mark.parametrize("payloads", SAMPLES)
def test_whole(payloads: Sequence[bytes]) -> None:
    reader = FrameReader(LIMIT)
    assert feed(reader, framed(*payloads)) == payloads
    assert not reader.unfinished


@pytest.mark.parametrize("payloads", SAMPLES)
def test_faults_3_byte_by_byte(payloads: Sequence[bytes]) -> None:
    data = framed(*payloads)
    pieces = [data[n : n + 1] for n in range(len(data))]
    assert feed_all(FrameReader(LIMIT), pieces) == payloads


@pytest.mark.parametrize("payloads", SAMPLES)
def test_faults_3_split_at_each_index(payloads: Sequence[bytes]) -> None:
    data = framed(*payloads)
    for cut in range(len(data) + 1):
        assert feed_all(FrameReader(LIMIT), [data[:cut], data[cut:]]) == payloads


@pytest.mark.parametrize("payloads", SAMPLES)
def test_faults_3_with_the_next_frame_begun(payloads: Sequence[bytes]) -> None:
    rest = framed(b"the next one")
    for begun in range(1, len(rest)):
        reader = FrameReader(LIMIT)
        assert feed(reader, framed(*payloads) + rest[:begun]) == payloads
        assert reader.unfinished
        assert feed(reader, rest[begun:]) == [b"the next one"]


def test_faults_3_golden_requests_in_one_packet(golden: object) -> None:
    frame: bytes = golden.request_frame  # type: ignore[attr-defined]
    assert feed(FrameReader(LIMIT), framed(frame, frame)) == [frame, frame]


@pytest.mark.parametrize(
    "size",
    [
        SLAB_BYTES - 5,
        SLAB_BYTES - 4,
        SLAB_BYTES - 3,
        SLAB_BYTES,
        SLAB_BYTES + 1,
        SLAB_BYTES * GROWTH_FACTOR - 32,
        SLAB_BYTES * GROWTH_FACTOR,
        SLAB_BYTES * GROWTH_FACTOR + 5,
        5_000_000,
    ],
)
def test_frames_around_the_sizes_of_the_buffers(size: int) -> None:
    large = bytes(range(256)) * (size // 256) + bytes(size % 256)
    for first in (b"x", b"y" * 4_000, b"z" * (SLAB_BYTES - 10)):
        reader = FrameReader(LIMIT)
        data = framed(first, large, b"after")
        assert feed(reader, data) == [first, large, b"after"]
        assert not reader.unfinished


@given(st.lists(st.integers(1, 200_000), max_size=6), st.lists(st.integers(1, 90_000)))
def test_any_frames_in_any_pieces(sizes: list[int], cuts: list[int]) -> None:
    payloads = [bytes([n + 1]) * size for n, size in enumerate(sizes)]
    data = framed(*payloads)
    pieces = []
    for cut in cuts:
        pieces.append(data[:cut])
        data = data[cut:]
    assert feed_all(FrameReader(LIMIT), [*pieces, data]) == payloads


@given(
    st.lists(st.lists(st.integers(1, 200_000), max_size=4), min_size=2, max_size=3),
    st.lists(st.integers(1, 90_000), min_size=1, max_size=30),
    st.sampled_from([SLAB_BYTES, 4 * SLAB_BYTES]),
)
def test_readers_that_share_a_slab_take_nothing_of_each_other(
    sizes: list[list[int]], cuts: list[int], slab_bytes: int
) -> None:
    slab = bytearray(slab_bytes)
    payloads = [
        [bytes([10 * number + n + 1]) * size for n, size in enumerate(of_one)]
        for number, of_one in enumerate(sizes)
    ]
    left = [framed(*of_one) for of_one in payloads]
    readers = [FrameReader(LIMIT, slab=slab) for _ in payloads]
    frames: list[list[bytes]] = [[] for _ in payloads]
    for cut in [*cuts, LIMIT]:
        for number, reader in enumerate(readers):
            frames[number] += feed(reader, left[number][:cut])
            left[number] = left[number][cut:]
    assert frames == payloads


@given(
    st.lists(st.integers(1, 300_000), max_size=10),
    st.lists(st.integers(1, 200_000), max_size=40),
    st.randoms(use_true_random=False),
)
def test_views_are_of_the_same_frames(sizes: list[int], cuts: list[int], random: Random) -> None:
    payloads = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    data = framed(*payloads)
    slab = bytearray(SHARED_SLAB_BYTES)
    reader = FrameReader(LIMIT, slab=slab)
    found: list[bytes] = []
    while data:
        buffer = reader.get_buffer()
        count = min(len(buffer), len(data), cuts.pop() if cuts else LIMIT)
        buffer[:count] = data[:count]
        data = data[count:]
        if random.random() < 0.5:
            views = reader.received_views(count)
            assert all(view.obj is slab for view in views if isinstance(view, memoryview))
            found += map(bytes, views)
        else:
            found += map(bytes, reader.received(count))
    assert found == payloads
    assert not reader.unfinished


def test_frames_before_a_broken_one_are_handed_out() -> None:
    reader = FrameReader(1_000)
    data = framed(b"first", b"second") + bytes(4)
    reader.get_buffer()[: len(data)] = data
    assert reader.received(len(data)) == [b"first", b"second"]
    assert "a frame of 0 bytes" in str(reader.fault)


@pytest.mark.parametrize("size", [10, SLAB_BYTES * 2])
def test_a_frame_stays_as_it_is_when_more_is_received(size: int) -> None:
    reader = FrameReader(LIMIT)
    data = framed(b"a" * size)
    frames: list[bytes | bytearray] = []
    while data:
        buffer = reader.get_buffer(-1)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        frames += reader.received(count)
        data = data[count:]
    feed(reader, framed(b"b" * size, b"c" * size))
    assert frames == [b"a" * size]


@pytest.mark.parametrize(
    "length", [0, -1, -(2**31), 1_001, 2**31 - 1], ids=["0", "-1", "min", "above", "max"]
)
def test_faults_1_a_length_out_of_range(length: int, peak_bytes: Callable[[], int]) -> None:
    with pytest.raises(ProtocolError) as caught:
        feed(FrameReader(1_000), length.to_bytes(4, "big", signed=True))
    assert caught.value.cause == (
        f"a frame of {length} bytes; allowed are 1 to 1000 (socket.request.max.bytes)"
    )
    assert peak_bytes() < 2 * SLAB_BYTES


def test_faults_1_a_length_at_the_limit() -> None:
    assert feed(FrameReader(1_000), framed(b"x" * 1_000)) == [b"x" * 1_000]
    with pytest.raises(ProtocolError):
        feed(FrameReader(1_000), framed(b"x" * 1_001))


def test_a_length_out_of_range_after_a_good_frame() -> None:
    reader = FrameReader(1_000)
    assert feed(reader, framed(b"good")) == [b"good"]
    with pytest.raises(ProtocolError):
        feed(reader, b"\x00\x00\x00\x00")


def test_the_limit_is_named_as_the_owner_says() -> None:
    with pytest.raises(ProtocolError, match=r"\(the client's limit\)"):
        feed(FrameReader(10, limit_name="the client's limit"), framed(b"x" * 11))


@pytest.mark.parametrize(
    ("start", "name"),
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS", id="ClientHello"),
        pytest.param(b"\x16\x03\x03\x00\x10\x01\x00\x00", "TLS", id="short ClientHello"),
        pytest.param(b"\x15\x03\x01\x00\x02\x02\x46", "TLS", id="TLS alert"),
        pytest.param(b"GET / HTTP/1.1\r\n", "HTTP", id="GET"),
        pytest.param(b"POST /x HTTP/1.1\r\n", "HTTP", id="POST"),
        pytest.param(b"HEAD / HTTP/1.1\r\n", "HTTP", id="HEAD"),
        pytest.param(b"OPTIONS * HTTP/1.1\r\n", "HTTP", id="OPTIONS"),
        pytest.param(b"PRI * HTTP/2.0\r\n", "HTTP", id="HTTP/2"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n", "HTTP", id="response"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", "SSH", id="SSH"),
    ],
)
def test_faults_2_another_protocol_is_named(start: bytes, name: str) -> None:
    # With a limit so high that the bytes read as an allowed length, and with a low one.
    for limit in (2**31 - 1, 1_000):
        for pieces in ([start], [start[n : n + 1] for n in range(4)]):
            with pytest.raises(ProtocolError, match=f"the other side speaks {name}, not Horolog"):
                feed_all(FrameReader(limit), pieces)


def test_faults_2_less_than_a_length_says_nothing_yet() -> None:
    reader = FrameReader(LIMIT)
    assert feed(reader, b"\x16\x03\x01") == []
    assert reader.unfinished


def test_only_the_beginning_of_a_connection_is_taken_for_another_protocol() -> None:
    reader = FrameReader(2**31 - 1)
    feed(reader, framed(b"good"))
    assert feed(reader, b"GET ") == []


@pytest.mark.parametrize("sent", [4, 60_000, 70_000, 1_000_000])
def test_a_declared_length_costs_in_proportion_to_what_has_come(
    sent: int, peak_bytes: Callable[[], int]
) -> None:
    data = (LIMIT.to_bytes(4, "big") + bytes(sent))[:sent]
    peak_bytes()
    feed(FrameReader(LIMIT), data)
    # The slab, the buffer, the one that it grew out of, and the pieces of this test.
    assert peak_bytes() < 2 * SLAB_BYTES + 16 * sent


def test_a_large_frame_is_never_read_past_its_end() -> None:
    reader = FrameReader(LIMIT)
    size = 3 * SLAB_BYTES
    data = framed(bytes(size))
    feed(reader, data[: 2 * SLAB_BYTES])
    assert len(reader.get_buffer()) == len(data) - 2 * SLAB_BYTES


def test_one_read_fills_a_bounded_part_of_a_large_frame() -> None:
    """A fast connection has the rest of a frame ready at once, and one read would take all."""
    reader = FrameReader(LIMIT)
    size = 3 * ONE_READ_BYTES
    data = framed(bytes(size))
    feed(reader, data[: ONE_READ_BYTES + 4])
    buffer = reader.get_buffer()
    assert ONE_READ_BYTES // 2 < len(buffer) <= ONE_READ_BYTES
    assert feed(reader, data[ONE_READ_BYTES + 4 :]) == [bytes(size)]


def test_a_large_frame_is_copied_no_more_once_a_part_has_come() -> None:
    reader = FrameReader(LIMIT)
    size = 3 * ONE_READ_BYTES
    data = framed(bytes(size))
    feed(reader, data[: ONE_READ_BYTES + SLAB_BYTES])
    assert reader.held_bytes == size
    (frame,) = feed(reader, data[ONE_READ_BYTES + SLAB_BYTES :])
    assert frame == bytes(size)


def large(reader: FrameReader, payload: bytes) -> bytearray:
    """The payload as the reader hands it out."""
    data = framed(payload)
    frames: list[bytes | bytearray] = []
    while data:
        buffer = reader.get_buffer(-1)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        frames += reader.received(count)
        data = data[count:]
    (frame,) = frames
    assert isinstance(frame, bytearray)
    assert frame == payload
    return frame


@pytest.mark.parametrize("more", [0, 1, 5000, -1, -5000])
def test_a_large_frame_that_was_given_back_is_received_into_again(more: int) -> None:
    reader = FrameReader(LIMIT)
    size = 10 * SLAB_BYTES
    first = large(reader, b"a" * size)
    reader.give_back(first)
    assert large(reader, b"b" * (size + more)) is first
    assert large(reader, b"c" * size) is not first, "it was given back only once"


def test_a_frame_that_is_looked_at_is_not_received_into() -> None:
    reader = FrameReader(LIMIT)
    first = large(reader, b"a" * 10 * SLAB_BYTES)
    with memoryview(first)[5:10] as view:
        reader.give_back(first)
        large(reader, b"b" * 10 * SLAB_BYTES)
        assert bytes(view) == b"aaaaa"


def test_memory_that_was_given_back_is_not_kept_for_much_smaller_frames() -> None:
    reader = FrameReader(LIMIT)
    first = large(reader, b"a" * 100 * SLAB_BYTES)
    reader.give_back(first)
    assert large(reader, b"b" * 10 * SLAB_BYTES) is not first
