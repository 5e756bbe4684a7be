"""Fault 43: one produce request whose sets take seconds to open, and what others notice of it."""

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cramjam import snappy

from horolog.config.address import split_address
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.native import frames as native
from horolog.protocol.errors import CorruptMessage
from horolog.protocol.records.batch import NewRecord, build_batch, read_header, write_header
from horolog.protocol.records.codecs.lz4_frame import header_checksum
from horolog.protocol.records.layout import BATCH_OVERHEAD, ENTRY_OVERHEAD, Codec
from horolog.testing.program import ServerProcess, serving
from horolog.testing.requests import create_topic, message_set, produce, produce_to, result, results
from horolog.testing.wire import wire

MIB = 1 << 20
EMPTY_BLOCKS = 100_000
OTHERS_MIN = 10
"""Requests of somebody else that are answered while the sets are opened. If they were opened in one
go, it would be one."""

WORKING_BYTES = 128 * MIB
"""What the process may take beside the request and its copies: one set that is opened, and what was
freed and is not given back to the system yet."""


def with_records(payload: bytes, codec: Codec) -> bytes:
    """A batch of one record, compressed by hand."""
    header = read_header(build_batch([NewRecord(b"x")]))
    batch = bytearray(BATCH_OVERHEAD) + payload
    write_header(batch, header._replace(attributes=int(codec), size=len(batch) - ENTRY_OVERHEAD))
    return bytes(batch)


def content() -> bytes:
    return bytes(build_batch([NewRecord(b"x")])[BATCH_OVERHEAD:])


def empty_lz4_blocks() -> bytes:
    descriptor = b"\x60\x40"
    head = b"\x04\x22\x4d\x18" + descriptor + bytes((header_checksum(descriptor, 2),))
    last = struct.pack("<I", len(content()) | 0x80000000) + content()
    blocks = struct.pack("<IB", 1, 0) * EMPTY_BLOCKS
    return with_records(head + blocks + last + bytes(4), Codec.LZ4)


def empty_snappy_blocks() -> bytes:
    last = bytes(snappy.compress_raw(content()))
    head = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    blocks = struct.pack(">iB", 1, 0) * EMPTY_BLOCKS
    return with_records(head + blocks + struct.pack(">i", len(last)) + last, Codec.SNAPPY)


def fifteen_megabytes() -> bytes:
    record = NewRecord(Random(1).randbytes(30_000) + bytes(15 * MIB))
    return bytes(build_batch([record], codec=Codec.ZSTD))


def resident_bytes(server: ServerProcess) -> int:
    statm = Path(f"/proc/{server.process.pid}/statm").read_text()
    return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def ask(address: str, request: bytes) -> Any:
    """Send one produce request and wait for its answer, in a thread of its own."""
    with (
        socket.create_connection(split_address(address)) as client,
        client.makefile("rb") as answers,
    ):
        client.sendall(request)
        length = int.from_bytes(answers.read(4), "big")
        _, raw = native.open_response(answers.read(length))
        return native.decode_response(PRODUCE.response, 3, raw)


async def attacked(
    server: ServerProcess, record_set: bytes, partitions: int
) -> tuple[set[int], int, int]:
    """The error codes that the attacker got, how many requests of another were answered meanwhile,
    and the most memory that the server was seen to have."""
    async with wire(server.native) as client:
        await client.call(create_topic("heavy", partitions))
        sent = result(await client.call(produce("honest", message_set(5))))
        # Opening so many logs takes its time as well.
        light = [(number, message_set(5, magic=2)) for number in range(partitions)]
        await client.call(produce_to("heavy", light))
        sets = [(number, record_set) for number in range(partitions)]
        request = native.encode_request(PRODUCE, 3, 1, "heavy", produce_to("heavy", sets))
        attack = asyncio.get_running_loop().run_in_executor(None, ask, server.native, request)
        answered = largest_bytes = 0
        while not attack.done():
            sent = result(await client.call(produce("honest", message_set(5))))
            answered += 1
            assert (sent.error_code, sent.base_offset) == (0, answered)
            largest_bytes = max(largest_bytes, resident_bytes(server))
            await asyncio.sleep(0.002)
        return {each.error_code for each in results(await attack)}, answered, largest_bytes


@pytest.mark.parametrize(
    ("made", "partitions", "codes"),
    [
        pytest.param(empty_lz4_blocks, 100, {CorruptMessage.code}, id="lz4"),
        pytest.param(empty_snappy_blocks, 100, {CorruptMessage.code}, id="snappy"),
        pytest.param(fifteen_megabytes, 120, {0}, id="zstd"),
    ],
)
def test_43_others_are_served_while_sets_are_opened(
    tmp_path: Path,
    tell: Callable[[str], None],
    made: Callable[[], bytes],
    partitions: int,
    codes: set[int],
) -> None:
    record_set = made()
    assert len(record_set) < MIB
    with serving(tmp_path / "data", "--set", "log.level=error") as server:
        idle_bytes = resident_bytes(server)
        told, answered, largest_bytes = asyncio.run(attacked(server, record_set, partitions))
        tell(
            f"{partitions} sets of {len(record_set)} bytes: {answered} honest requests; at most "
            f"{largest_bytes / MIB:.0f} MiB"
        )
        assert told == codes
        assert answered >= OTHERS_MIN
        assert largest_bytes < idle_bytes + 4 * partitions * len(record_set) + WORKING_BYTES
        assert server.stop() == 0
