"""A limit on the size of files (EFBIG), on a real server: a full disk, but for one file only."""

import resource
from pathlib import Path

from horolog.protocol.errors import NO_ERROR
from horolog.testing.program import ServerProcess, serving
from horolog.testing.wire import wire

from .correspondent import REFUSED, Correspondent, check_files

LIMIT_BYTES = 30_000
"""More than the server writes to any other file."""


def limit_files(server: ServerProcess, size_bytes: int) -> None:
    limits = (size_bytes, resource.RLIM_INFINITY)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limits)


async def test_34_a_file_that_may_not_grow(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with serving(data_dir) as server:
        async with wire(server.native) as connection:
            client = Correspondent(connection)
            for topic in ("a", "b"):
                assert await client.create(topic, index_interval_bytes=1000) == NO_ERROR
            limit_files(server, LIMIT_BYTES)
            while await client.produce("a") == NO_ERROR:
                pass
            size_bytes = (data_dir / "a-0" / f"{0:020d}.log").stat().st_size
            assert LIMIT_BYTES - 1000 < size_bytes < LIMIT_BYTES, "what landed is cut off again"
            for acks in (1, -1):
                assert await client.produce("a", acks=acks) == REFUSED
                assert await client.produce("b", acks=acks) == NO_ERROR
            await client.check()
            limit_files(server, resource.RLIM_INFINITY)
            assert await client.produce("a", acks=-1) == NO_ERROR
            await client.check()
        assert server.stop() == 0
    check_files(data_dir)
