"""A sync that fails once on a real server: its partition takes nothing more until a restart."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from horolog.protocol.errors import NO_ERROR
from horolog.testing.program import ServerProcess, serving
from horolog.testing.wire import wire

from .conftest import not_here
from .correspondent import REFUSED, Correspondent, check_files

LOG = f"a-0/{0:020d}.log"


@pytest.fixture
def preloaded(tmp_path: Path, require_program: Callable[[str], str]) -> dict[str, str]:
    """Environment of a server whose syncs can be made to fail."""
    library = tmp_path / "failing_sync.so"
    source = Path(__file__).with_name("failing_sync.c")
    gcc = [require_program("gcc"), "-shared", "-fPIC", "-Wall", "-Werror"]
    subprocess.run([*gcc, "-o", str(library), str(source), "-ldl"], check=True)
    return {
        "LD_PRELOAD": str(library),
        "FAIL_SYNC_OF": LOG,
        "FAIL_SYNC_ONCE": str(tmp_path / "now"),
    }


@contextmanager
def straced(server: ServerProcess, program: str, call: str, error: str) -> Iterator[None]:
    """The first `call` of the server on the log fails with `error`."""
    log, inject = str(server.data_dir / LOG), f"inject={call}:error={error}:when=1"
    command = [program, "-f", "-P", log, "-e", f"trace={call}", "-e", inject]
    with subprocess.Popen(
        [*command, "-p", str(server.process.pid)], stderr=subprocess.PIPE, text=True
    ) as tracer:
        assert tracer.stderr is not None
        attached = tracer.stderr.readline()
        if "attached" not in attached:
            not_here(f"strace cannot attach: {attached}")
        try:
            yield
        finally:
            tracer.terminate()
            tracer.stderr.read()


async def prepared(client: Correspondent) -> None:
    for topic in ("a", "b"):
        assert await client.create(topic) == NO_ERROR
        assert await client.produce(topic, acks=-1) == NO_ERROR


async def check_until_restart(client: Correspondent) -> None:
    """The sync of `a` has failed; every other one works."""
    for acks in (1, -1):
        assert await client.produce("a", acks=acks) == REFUSED
        assert await client.produce("b", acks=acks) == NO_ERROR
    await client.check()


async def check_after_restart(data_dir: Path, client: Correspondent) -> None:
    with serving(data_dir) as server:
        async with wire(server.native) as client.wire:
            found = await client.read("a")
            assert found.items() >= client.acknowledged["a"].items()
            assert await client.produce("a", acks=-1) == NO_ERROR
            await client.check("b")
        assert server.stop() == 0
    check_files(data_dir)


async def test_36_a_sync_fails_once(tmp_path: Path, preloaded: dict[str, str]) -> None:
    data_dir = tmp_path / "data"
    with serving(data_dir, env=preloaded) as server:
        async with wire(server.native) as connection:
            client = Correspondent(connection)
            await prepared(client)
            (tmp_path / "now").touch()
            assert await client.produce("a", acks=-1) == REFUSED
            assert not (tmp_path / "now").exists()
            await check_until_restart(client)
        assert server.stop() != 0, "the stop was not clean"
    await check_after_restart(data_dir, client)


async def test_36_a_sync_fails_under_strace(
    tmp_path: Path, require_program: Callable[[str], str]
) -> None:
    data_dir = tmp_path / "data"
    with serving(data_dir) as server:
        async with wire(server.native) as connection:
            client = Correspondent(connection)
            await prepared(client)
            with straced(server, require_program("strace"), "fdatasync", "EIO"):
                assert await client.produce("a", acks=-1) == REFUSED
                await check_until_restart(client)
        assert server.stop() != 0
    await check_after_restart(data_dir, client)


async def test_35_a_write_finds_no_room_under_strace(
    tmp_path: Path, require_program: Callable[[str], str]
) -> None:
    data_dir = tmp_path / "data"
    with serving(data_dir) as server:
        async with wire(server.native) as connection:
            client = Correspondent(connection)
            await prepared(client)
            with straced(server, require_program("strace"), "pwrite64", "ENOSPC"):
                assert await client.produce("a", acks=-1) == REFUSED
                assert await client.produce("a", acks=-1) == NO_ERROR
                await client.check()
        assert server.stop() == 0
    check_files(data_dir)
