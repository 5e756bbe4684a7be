"""Compressed values: what is read, what is refused, and that nothing grows past its bound."""

import gzip
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from random import Random
from zlib import crc32

import cramjam
import lz4.block
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.errors import CorruptMessage, MessageTooLarge
from horolog.protocol.records.codecs import gzip_stream, lz4_frame, xerial
from horolog.protocol.records.codecs.codec import compress, decompress, open_sent
from horolog.protocol.records.codecs.lz4_frame import xxh32
from horolog.protocol.records.layout import Codec
from horolog.tests.properties.examples import examples

KIB = 1024
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
each_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
each_magic = pytest.mark.parametrize("magic", [0, 1])

CONTENTS = [
    pytest.param(b"", id="empty"),
    pytest.param(b"x", id="one-byte"),
    pytest.param(bytes(range(256)) * 1000, id="several-blocks"),
    pytest.param(Random(5).randbytes(200_000), id="incompressible"),
    pytest.param(bytes(64 * KIB), id="exactly-one-lz4-block"),
    pytest.param(bytes(32 * KIB + 1), id="one-byte-more-than-a-snappy-block"),
]


@each_codec
@each_magic
@pytest.mark.parametrize("content", CONTENTS)
def test_round_trip(codec: Codec, magic: int, content: bytes) -> None:
    for holder in (bytes, bytearray, memoryview):
        value = compress(codec, holder(content), magic=magic)
        back = decompress(codec, holder(value), magic=magic, max_bytes=len(content))
        assert back == content


def test_no_codec_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="none"):
        compress(Codec.NONE, b"", magic=1)
    with pytest.raises(ValueError, match="none"):
        decompress(Codec.NONE, b"", magic=1, max_bytes=1)


# The bound


@each_codec
@each_magic
def test_the_bound_is_exact(codec: Codec, magic: int) -> None:
    content = Random(1).randbytes(100 * KIB)
    value = compress(codec, content, magic=magic)
    assert decompress(codec, value, magic=magic, max_bytes=len(content)) == content
    with pytest.raises(MessageTooLarge, match=r"102399 bytes.*max\.decompressed\.bytes"):
        decompress(codec, value, magic=magic, max_bytes=len(content) - 1)


BOMB = """
import sys
from horolog.protocol.errors import MessageTooLarge
from horolog.protocol.records.codecs.codec import open_sent
from horolog.protocol.records.layout import Codec

def peak_kib():
    # The peak of getrusage begins with that of the process that started this one.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))

value = sys.stdin.buffer.read()
before = peak_kib()
try:
    open_sent(Codec({codec}), value, magic=1, max_bytes=64 * 1024)
except MessageTooLarge:
    print(peak_kib() - before)
"""


def _raw_snappy(size: int) -> bytes:
    return bytes(cramjam.snappy.compress_raw(bytes(size)))


@pytest.mark.parametrize(
    ("codec", "build"),
    [
        pytest.param(Codec.GZIP, lambda size: gzip.compress(bytes(size), mtime=0), id="gzip"),
        pytest.param(Codec.SNAPPY, _raw_snappy, id="snappy-raw"),
        pytest.param(
            Codec.SNAPPY, lambda size: compress(Codec.SNAPPY, bytes(size), magic=1), id="xerial"
        ),
        pytest.param(
            Codec.LZ4,
            lambda size: lz4.frame.compress(
                bytes(size), block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False
            ),
            id="lz4",
        ),
        pytest.param(
            Codec.LZ4,
            lambda size: lz4.frame.compress(
                bytes(size),
                block_size=lz4.frame.BLOCKSIZE_MAX4MB,
                block_linked=False,
                content_checksum=True,
            ),
            id="lz4-checksum",
        ),
    ],
)
def test_a_bomb_of_1000_times_the_bound_takes_no_memory(
    codec: Codec, build: Callable[[int], bytes]
) -> None:
    """faults.md 8. An LZ4 block of 4 MiB is the largest piece that is made before it is counted.
    Its library holds it twice."""
    value = build(64 * 1000 * KIB)
    script = BOMB.format(codec=int(codec))
    done = subprocess.run(
        [sys.executable, "-c", script], input=value, capture_output=True, check=True
    )
    grown_kib = int(done.stdout)
    assert grown_kib < 10 * KIB + len(value) // KIB


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"\xff\xff\xff\xff\x0f\x10hello", id="raw-4-GiB"),
        pytest.param(b"\xe9\x07\x10hello", id="raw-just-above"),
        pytest.param(
            xerial.compress(b"x" * 996) + b"\0\0\0\x07\x05\x10hello", id="framed-in-the-last-block"
        ),
    ],
)
def test_a_snappy_length_is_believed_before_its_content(value: bytes) -> None:
    with pytest.raises(MessageTooLarge):
        decompress(Codec.SNAPPY, value, magic=1, max_bytes=1000)


# What is broken


@each_codec
@each_magic
def test_truncation_at_each_byte(codec: Codec, magic: int) -> None:
    """A framed snappy stream has no end of its own: cut between blocks it is a shorter one."""
    content = Random(2).randbytes(500) + bytes(500)
    value = compress(codec, content, magic=magic)
    between_blocks = {16} if codec is Codec.SNAPPY else set()
    for size in range(len(value)):
        if size in between_blocks:
            assert decompress(codec, value[:size], magic=magic, max_bytes=1 << 20) == b""
            continue
        with pytest.raises(CorruptMessage):
            decompress(codec, value[:size], magic=magic, max_bytes=1 << 20)


@each_codec
@each_magic
@pytest.mark.parametrize("garbage", [b"\0", b"\x1f", b"\x1f\x8b\x08", b"garbage", bytes(40)])
def test_bytes_after_the_end(codec: Codec, magic: int, garbage: bytes) -> None:
    value = compress(codec, b"content" * 20, magic=magic) + garbage
    with pytest.raises(CorruptMessage):
        decompress(codec, value, magic=magic, max_bytes=9999)


@each_codec
@examples(300)
@given(data=st.data())
def test_any_bytes_give_content_or_an_error_of_ours(codec: Codec, data: st.DataObject) -> None:
    magic = data.draw(st.sampled_from([0, 1]))
    value = bytearray(
        data.draw(
            st.one_of(
                st.binary(max_size=300),
                st.binary(max_size=300).map(lambda tail: compress(codec, tail * 3, magic=magic)),
            )
        )
    )
    edits = data.draw(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6))
    for place, byte in edits:
        if place < len(value):
            value[place] = byte
    with suppress(CorruptMessage, MessageTooLarge):
        assert len(decompress(codec, value, magic=magic, max_bytes=500)) <= 500


# What producers send


@each_codec
@each_magic
def test_all_clients_read_what_we_write(codec: Codec, magic: int) -> None:
    value = compress(codec, b"content" * 20, magic=magic)
    assert open_sent(codec, value, magic=magic, max_bytes=140) == (b"content" * 20, True)


def test_all_clients_read_what_zstd_makes_of_a_stream() -> None:
    """Two frames without their sizes, and one that is to be skipped."""
    frames = [zstandard.ZstdCompressor().compressobj() for _ in range(2)]
    first, second = (frame.compress(b"content") + frame.flush() for frame in frames)
    value = first + b"\x50\x2a\x4d\x18\x04\0\0\0skip" + second
    assert open_sent(Codec.ZSTD, value, magic=2, max_bytes=14) == (b"content" * 2, True)


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        pytest.param(
            Codec.GZIP, gzip_stream.compress(b"con") + gzip_stream.compress(b"tent"), id="members"
        ),
        pytest.param(
            Codec.GZIP, gzip_stream.compress(b"") + gzip_stream.compress(b"content"), id="empty"
        ),
        pytest.param(
            Codec.SNAPPY,
            xerial.compress(b"content").replace(b"\0\0\0\x01" * 2, bytes(8)),
            id="snappy-version-0",
        ),
    ],
)
@each_magic
def test_what_not_all_clients_read(codec: Codec, value: bytes, magic: int) -> None:
    """librdkafka reads one gzip member; aiokafka and Java know snappy framing of version 1."""
    assert open_sent(codec, value, magic=magic, max_bytes=7) == (b"content", False)


def test_all_clients_read_a_raw_snappy_block() -> None:
    value = bytes(cramjam.snappy.compress_raw(b"content"))
    assert open_sent(Codec.SNAPPY, value, magic=2, max_bytes=7) == (b"content", True)


# gzip


def test_gzip_agrees_with_the_standard_library() -> None:
    content = bytes(range(256)) * 500
    assert gzip.decompress(gzip_stream.compress(content)) == content
    assert gzip_stream.decompress(gzip.compress(content, 9), len(content)) == content


def test_gzip_writes_no_time_of_its_own_m50() -> None:
    assert gzip_stream.compress(b"x")[4:8] == bytes(4)


@pytest.mark.parametrize("size", [0, 1, 7, 70_000])
def test_gzip_members_follow_one_another(size: int) -> None:
    parts = [Random(seed).randbytes(size) for seed in range(5)]
    value = b"".join(map(gzip_stream.compress, parts))
    assert gzip_stream.decompress(value, 5 * size) == b"".join(parts)
    with pytest.raises(CorruptMessage, match="ends early"):
        gzip_stream.decompress(value[:-1], 5 * size)


def test_gzip_members_share_one_bound() -> None:
    value = gzip_stream.compress(bytes(60)) * 2
    with pytest.raises(MessageTooLarge):
        gzip_stream.decompress(value, 119)
    assert gzip_stream.decompress(value, 120) == bytes(120)


def test_gzip_members_are_counted() -> None:
    one = gzip_stream.compress(b"x")
    assert gzip_stream.decompress(one * gzip_stream.MAX_MEMBERS, 9999) == b"x" * 1024
    with pytest.raises(CorruptMessage, match="more than 1024 members"):
        gzip_stream.decompress(one * (gzip_stream.MAX_MEMBERS + 1), 9999)


@pytest.mark.parametrize("place", [-1, -8], ids=["length", "crc"])
def test_gzip_checks_its_trailer(place: int) -> None:
    """M-31."""
    value = bytearray(gzip_stream.compress(b"hello" * 100))
    value[place] ^= 1
    with pytest.raises(CorruptMessage, match="gzip"):
        gzip_stream.decompress(value, 9999)


@pytest.mark.parametrize("behind", [b"rubbish", bytes(8)], ids=["rubbish", "padding"])
def test_gzip_names_what_follows_the_last_member(behind: bytes) -> None:
    value = gzip_stream.compress(b"hello") + behind
    with pytest.raises(CorruptMessage, match=f"{len(behind)} bytes follow the last member"):
        gzip_stream.decompress(value, 5)


def member(flags: int, header_crc: int | None = None) -> bytes:
    """A member with those flags, and with a CRC of its header if there is one."""
    head = b"\x1f\x8b\x08" + bytes((flags,)) + bytes(6)
    crc = b"" if header_crc is None else (crc32(head) & 0xFFFF ^ header_crc).to_bytes(2, "little")
    return head + crc + gzip_stream.compress(b"hello")[10:]


def test_gzip_checks_the_crc_of_a_header() -> None:
    assert open_sent(Codec.GZIP, member(0x02, 0), magic=2, max_bytes=5).content == b"hello"
    with pytest.raises(CorruptMessage, match="gzip"):
        open_sent(Codec.GZIP, member(0x02, 1), magic=2, max_bytes=5)


@pytest.mark.parametrize("flag", [0x20, 0x40, 0x80])
def test_gzip_with_reserved_flags_is_refused_and_what_is_stored_is_read(flag: int) -> None:
    """zlib, which librdkafka uses, reads no such member. A log may have some from before."""
    value = gzip_stream.compress(b"") + member(flag)
    assert gzip_stream.decompress(value, 5) == b"hello"
    with pytest.raises(CorruptMessage, match=f"at byte 20 has flags {flag:02x}"):
        open_sent(Codec.GZIP, value, magic=2, max_bytes=5)


# snappy


def test_snappy_is_written_in_32_kib_blocks_m56() -> None:
    value = xerial.compress(bytes(32 * KIB + 1))
    assert value[:16].hex() == "82534e41505059000000000100000001"
    first = int.from_bytes(value[16:20], "big")
    second = value[20 + first :]
    assert second == b"\0\0\0\x03\x01\x00\x00"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(b"", "snappy", id="nothing"),
        pytest.param(b"\x82SNAPPY\0\0\0\0", "header has 11 of 16", id="half-a-header"),
        pytest.param(b"\x82SNAPPY\0\0\0\0\x02\0\0\0\x02", "version 2", id="newer-version"),
        pytest.param(xerial.compress(b"") + b"\0\0\0", "3 stray bytes", id="half-a-length"),
        pytest.param(xerial.compress(b"") + b"\0\0\0\0", "has 0 bytes", id="length-0"),
        pytest.param(xerial.compress(b"") + b"\xff\xff\xff\xff", "has -1 bytes", id="length--1"),
        pytest.param(
            xerial.compress(b"") + b"\x7f\xff\xff\xff\x05", "has 2147483647 bytes", id="length-max"
        ),
        pytest.param(
            xerial.compress(b"") + b"\0\0\0\x08\x05\x10hello", "has 8 bytes; 7 are", id="length-1"
        ),
        pytest.param(b"\x06\x10hello", "snappy", id="content-too-short"),
        pytest.param(b"\x04\x10hello", "snappy", id="content-too-long"),
    ],
)
def test_snappy_lengths_that_are_wrong(value: bytes, text: str) -> None:
    with pytest.raises(CorruptMessage, match=text):
        xerial.decompress(value, 9999)


def test_snappy_blocks_of_nothing_are_read() -> None:
    value = xerial.compress(b"") + b"\0\0\0\x01\0" + b"\0\0\0\x07\x05\x10hello"
    assert xerial.decompress(value, 5) == b"hello"


# lz4


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_xxh32_published_values(data: bytes, expected: int) -> None:
    assert xxh32(data) == expected


@given(st.binary(max_size=200))
def test_xxh32_agrees_with_the_content_checksum_of_liblz4(data: bytes) -> None:
    frame = lz4.frame.compress(data, content_checksum=True)
    assert xxh32(data) == int.from_bytes(frame[-4:], "little")


@pytest.mark.parametrize(
    ("descriptor", "right", "broken"),
    [
        ("6040", 0x82, 0x1A),
        ("6440", 0xA7, 0x0C),
        ("6050", 0xFB, 0x77),
        ("6060", 0x51, 0xD6),
        ("6070", 0x73, 0x10),
        ("7040", 0xAD, 0xEC),
    ],
)
def test_lz4_header_checksums_m54(descriptor: str, right: int, broken: int) -> None:
    """M-52."""
    assert lz4_frame.header_checksum(bytes.fromhex(descriptor), 1) == right
    assert lz4_frame.header_checksum(bytes.fromhex(descriptor), 0) == broken


@pytest.mark.parametrize("content", CONTENTS)
def test_lz4_frames_are_read_by_liblz4(content: bytes) -> None:
    assert lz4.frame.decompress(lz4_frame.compress(content, 1)) == content


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("flags", range(8))
def test_lz4_frames_of_liblz4_are_read_m51(block_size: int, flags: int) -> None:
    content = Random(3).randbytes(50_000) + bytes(150_000)
    frame = lz4.frame.compress(
        content,
        block_size=block_size,
        block_linked=False,
        store_size=bool(flags & 1),
        content_checksum=bool(flags & 2),
        block_checksum=bool(flags & 4),
    )
    assert lz4_frame.decompress(frame, 1, len(content)) == content
    assert open_sent(Codec.LZ4, frame, magic=1, max_bytes=len(content)) == (content, True)
    with pytest.raises(MessageTooLarge):
        open_sent(Codec.LZ4, frame, magic=1, max_bytes=len(content) - 1)


@each_magic
@pytest.mark.parametrize(
    ("block_size", "checksum", "at", "text"),
    [
        (4, "content_checksum", -1, "the content checksum is not that of the content"),
        (7, "content_checksum", -4, "the content checksum is not that of the content"),
        (4, "block_checksum", -5, "the checksum of block 3 is not that of its bytes"),
        (7, "block_checksum", -8, "the checksum of block 0 is not that of its bytes"),
    ],
)
def test_lz4_checksums_that_are_wrong(
    magic: int, block_size: int, checksum: str, at: int, text: str
) -> None:
    """librdkafka, kafka-python and aiokafka stop at such a set for ever. What is stored already
    stays readable: M-51, and the message's CRC covers the same bytes."""
    content = Random(4).randbytes(100_000) + bytes(150_000)
    frame = bytearray(
        lz4.frame.compress(
            content, block_size=block_size, block_linked=False, store_size=False, **{checksum: True}
        )
    )
    if not magic:
        frame[6] = lz4_frame.header_checksum(bytes(frame[4:6]), 0)
    max_bytes = len(content)
    assert open_sent(Codec.LZ4, frame, magic=magic, max_bytes=max_bytes) == (content, True)
    frame[at] ^= 1
    assert lz4_frame.decompress(frame, magic, max_bytes) == content
    with pytest.raises(CorruptMessage, match=f"lz4: {text}"):
        open_sent(Codec.LZ4, frame, magic=magic, max_bytes=max_bytes)


def test_lz4_frames_with_checksums_are_cut_nowhere() -> None:
    frame = lz4.frame.compress(
        b"hello" * 20, block_linked=False, content_checksum=True, block_checksum=True
    )
    for size in range(len(frame)):
        with pytest.raises(CorruptMessage, match="lz4"):
            open_sent(Codec.LZ4, frame[:size], magic=1, max_bytes=100)
    for byte in range(len(frame)):
        changed = frame[:byte] + bytes((frame[byte] ^ 1,)) + frame[byte + 1 :]
        with pytest.raises(CorruptMessage, match="lz4"):
            open_sent(Codec.LZ4, changed, magic=1, max_bytes=100)


def _with_header(flags: int, block_descriptor: int, rest: bytes = b"") -> bytes:
    descriptor = bytes((flags, block_descriptor)) + rest
    checksum = lz4_frame.header_checksum(descriptor, 1)
    return b"\x04\x22\x4d\x18" + descriptor + bytes((checksum,)) + b"\x05\0\0\x80hello\0\0\0\0"


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        pytest.param(b"", "no frame", id="nothing"),
        pytest.param(b"\x04\x22\x4d", "no frame", id="half-a-magic"),
        pytest.param(b"\x04\x22\x4d\x19\x60\x40\x82", "begins with 04224d19", id="other-magic"),
        pytest.param(_with_header(0x40, 0x40), "FLG 40", id="linked-blocks"),
        pytest.param(_with_header(0xA0, 0x40), "FLG a0", id="version-2"),
        pytest.param(_with_header(0x61, 0x40), "FLG 61", id="reserved-flag-0"),
        pytest.param(_with_header(0x62, 0x40), "FLG 62", id="reserved-flag-1"),
        pytest.param(_with_header(0x60, 0xC0), "BD c0", id="reserved-bd-high"),
        pytest.param(_with_header(0x60, 0x41), "BD 41", id="reserved-bd-low"),
        pytest.param(_with_header(0x60, 0x30), "BD 30", id="block-size-3"),
        pytest.param(
            _with_header(0x68, 0x40, (6).to_bytes(8, "little")), "5 bytes.*6", id="content-size"
        ),
        pytest.param(_with_header(0x64, 0x40), "has 24 bytes, the message 20", id="no-checksum"),
        pytest.param(
            _with_header(0x60, 0x40)[:7] + b"\x01\0\x01\x80" + bytes(65537 + 4),
            "65537 bytes.*65536",
            id="stored-block-too-long",
        ),
        pytest.param(
            _with_header(0x60, 0x40)[:7] + b"\x02\0\0\0\xff\xff\0\0\0\0", "lz4", id="bad-block"
        ),
    ],
)
def test_lz4_frames_that_are_refused_m51(frame: bytes, text: str) -> None:
    with pytest.raises(CorruptMessage, match=text):
        lz4_frame.decompress(frame, 1, 1 << 20)


def test_lz4_frames_that_are_accepted_beside_the_refused_ones() -> None:
    assert lz4_frame.decompress(_with_header(0x60, 0x40), 1, 5) == b"hello"
    sized = _with_header(0x68, 0x40, (5).to_bytes(8, "little"))
    assert lz4_frame.decompress(sized, 1, 5) == b"hello"


def test_a_block_may_not_hold_more_than_the_frame_says() -> None:
    big = lz4.frame.compress(bytes(100_000), block_size=5, block_linked=False, store_size=False)
    assert big[4:7].hex() == "6050fb"
    small = big[:4] + b"\x60\x40\x82" + big[7:]
    with pytest.raises(CorruptMessage, match="lz4"):
        lz4_frame.decompress(small, 1, 1 << 20)


# Blocks


def small_blocks(
    codec: Codec, blocks: int, block_bytes: int, *, with_checksum: bool = False
) -> bytes:
    """A frame of so many blocks of so many zeros; with a checksum of its content it is lz4."""
    content = bytes(block_bytes)
    if codec is Codec.SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(content))
        head = xerial.compress(b"")
        return head + (len(block).to_bytes(4, "big") + block) * blocks
    head = lz4_frame.compress(b"", 1)[:-4]
    checksum = b""
    if with_checksum:
        head = head[:4] + b"\x64\x40\xa7"
        checksum = lz4.frame.compress(content * blocks, content_checksum=True)[-4:]
    block = bytes(lz4.block.compress(content, store_size=False))
    return head + (len(block).to_bytes(4, "little") + block) * blocks + bytes(4) + checksum


@pytest.mark.parametrize(
    ("codec", "with_checksum"),
    [
        pytest.param(Codec.SNAPPY, False, id="snappy"),
        pytest.param(Codec.LZ4, False, id="lz4"),
        pytest.param(Codec.LZ4, True, id="lz4-checksum"),
    ],
)
@pytest.mark.parametrize(
    ("blocks", "block_bytes"), [(1024, 0), (1025, 1), (1030, 200), (3000, 700), (20_000, 1024)]
)
def test_blocks_may_be_small_if_they_are_few(
    codec: Codec, with_checksum: bool, blocks: int, block_bytes: int
) -> None:
    value = small_blocks(codec, blocks, block_bytes, with_checksum=with_checksum)
    if blocks <= 1024 + blocks * block_bytes // 1024:
        content = open_sent(codec, value, magic=1, max_bytes=1 << 25).content
        assert content == bytes(blocks * block_bytes)
    else:
        with pytest.raises(CorruptMessage, match=f"{codec.label}: the frame has .* blocks"):
            open_sent(codec, value, magic=1, max_bytes=1 << 25)
