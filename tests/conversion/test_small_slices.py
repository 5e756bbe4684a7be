"""Slices that end before they tell what format they have, for every reader of every format."""

from itertools import product
from pathlib import Path

import pytest

from horolog.protocol.errors import StorageError, UnsupportedForMessageFormat
from horolog.protocol.records.layout import MAGIC_AT, MESSAGE_CODECS, Codec
from horolog.protocol.records.messages.downconversion import DamagedSlice, downconversion, run
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.server.broker import Broker
from horolog.testing.requests import fetch, produce, result
from horolog.testing.wire import Wire

NOW = 1_479_144_272_509
FORMATS = [
    (magic, codec)
    for magic, codec in product((0, 1, 2), Codec)
    if magic == 2 or codec in MESSAGE_CODECS
]
LIMITS = [*range(-1, 2 * MAGIC_AT + 2), 60, 61, 62, 90]


def a_set(magic: int, codec: Codec) -> bytes:
    time_ms = NOW if magic else -1
    records = [NewRecord(b"value", b"key", time_ms) for _ in range(3)]
    return bytes(build_set(records, magic=magic, codec=codec))


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
async def test_every_reader_gets_a_slice_of_any_size(
    client: Wire, magic: int, codec: Codec
) -> None:
    for _ in range(2):
        await client.call(produce("a", a_set(magic, codec)))
    for version, limit, offset in product(range(5), LIMITS, (0, 4, 6)):
        request = fetch("a", (0, offset), partition_max_bytes=limit)
        got = result(await client.call(request, version))
        assert got.error_code == 0, (version, limit, offset, got.error_message)
        if version < 3 and offset < 6:
            # The size of what came tells the reader to ask for more: F-13, F-34.
            assert bool(got.records) == (limit > 0), (version, limit, offset)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", range(MAGIC_AT + 1))
def test_a_slice_without_a_format_stays_as_it_is(magic: int, size: int) -> None:
    data = a_set(2, Codec.NONE)[:size]
    converted = run(downconversion(data, max_bytes=1000, max_content_bytes=1000, magic=magic))
    assert (converted.data, converted.messages, converted.used_bytes) == (data, 0, size)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_magic_that_changed_on_disk_is_damage(magic: int) -> None:
    data = bytearray(a_set(2, Codec.NONE))
    data[MAGIC_AT] = magic
    with pytest.raises(DamagedSlice):
        run(downconversion(data, max_bytes=1000, max_content_bytes=1000, magic=1))


def test_a_magic_that_is_not_known_is_named() -> None:
    data = bytearray(a_set(2, Codec.NONE))
    data[MAGIC_AT] = 3
    with pytest.raises(UnsupportedForMessageFormat, match="magic 3"):
        run(downconversion(data, max_bytes=1000, max_content_bytes=1000, magic=1))


async def test_a_reader_of_v1_learns_where_the_damage_is(broker: Broker, client: Wire) -> None:
    await client.call(produce("a", a_set(2, Codec.NONE)))
    path: Path = broker.directory.log("a", 0).segments[0].log_path
    with path.open("r+b") as file:
        file.seek(MAGIC_AT)
        file.write(b"\x01")
    got = result(await client.call(fetch("a", (0, 0)), 2))
    assert got.error_code == StorageError.code
    assert f"{path}: damaged at byte 0" in got.error_message
