"""Compressed sets of several members or frames, as no client of Kafka writes them but other
libraries do: what is stored of them every client reads."""

import asyncio
import gzip
import struct
from collections.abc import Callable, Mapping

import lz4.frame
import pytest
import zstandard

from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.records.batch import read_header, write_header
from horolog.protocol.records.codecs import xerial
from horolog.protocol.records.layout import BATCH_OVERHEAD, ENTRY_OVERHEAD, Codec
from horolog.protocol.records.messages.sets import NewRecord, build_message, build_set
from horolog.testing.requests import produce, result
from horolog.testing.wire import wire

from .aio_kafka import AioKafka
from .client import Client
from .conftest import Start
from .kafka_python import KafkaPython
from .librdkafka import ConfluentKafka

EACH = 20
TOPIC = "frames"


def halves(pack: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Packs the two halves of what it is given, each by itself."""
    return lambda plain: pack(plain[: len(plain) // 2]) + pack(plain[len(plain) // 2 :])


def unsized_frame(plain: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return compressor.compress(plain) + compressor.flush()


def lz4_with_checksums(plain: bytes) -> bytes:
    made: bytes = lz4.frame.compress(
        plain, block_linked=False, content_checksum=True, block_checksum=True
    )
    return made


PACKED: Mapping[str, tuple[Codec, int, Callable[[bytes], bytes]]] = {
    "gzip members": (Codec.GZIP, 2, halves(gzip.compress)),
    "gzip members in a wrapper": (Codec.GZIP, 1, halves(gzip.compress)),
    "snappy framing of version 0": (
        Codec.SNAPPY,
        2,
        lambda plain: xerial.compress(plain)[:8] + bytes(8) + xerial.compress(plain)[16:],
    ),
    "lz4 checksums": (Codec.LZ4, 2, lz4_with_checksums),
    "lz4 checksums in a wrapper": (Codec.LZ4, 1, lz4_with_checksums),
    "zstd frames": (Codec.ZSTD, 2, halves(unsized_frame)),
}
"""Sets by what is unusual in them: codec, format, and how it is compressed."""


def values(number: int) -> list[bytes]:
    return [b"set %d, message %d" % (number, one) + b"-" * 200 for one in range(EACH)]


def packed(number: int, codec: Codec, magic: int, pack: Callable[[bytes], bytes]) -> bytes:
    """A set as a producer sends it."""
    sent = [NewRecord(value, timestamp_ms=1_500_000_000_000) for value in values(number)]
    plain = build_set(sent, magic=magic)
    if magic == 1:
        message = build_message(
            None, pack(bytes(plain)), timestamp_ms=1_500_000_000_000, attributes=codec
        )
        return struct.pack(">qi", EACH - 1, len(message)) + message
    made = plain[:BATCH_OVERHEAD] + pack(bytes(plain[BATCH_OVERHEAD:]))
    header = read_header(plain)
    write_header(made, header._replace(size=len(made) - ENTRY_OVERHEAD, attributes=int(codec)))
    return bytes(made)


@pytest.fixture(scope="module")
def topic(address: str) -> str:
    """A topic with all those sets in it."""

    async def fill() -> None:
        async with wire(address, kafka) as connected:
            for number, one in enumerate(PACKED.values()):
                sent = produce(TOPIC, packed(number, *one))
                got = result(await connected.call(sent, 7 if one[1] == 2 else 2))
                assert (got.error_code, got.base_offset) == (0, EACH * number)

    asyncio.run(fill())
    return TOPIC


@pytest.mark.parametrize(
    "reader", [pytest.param(kind, id=kind.name) for kind in (ConfluentKafka, KafkaPython, AioKafka)]
)
def test_every_client_reads_what_is_stored(reader: type[Client], start: Start, topic: str) -> None:
    """librdkafka aborts at a gzip stream of several members."""
    expected = [
        (EACH * number + place, value)
        for number in range(len(PACKED))
        for place, value in enumerate(values(number))
    ]
    found = start(reader).consume(topic, len(expected))
    assert [(one.offset, one.message.value) for one in found] == expected
