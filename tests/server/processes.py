"""Server processes, for tests that need a whole one."""

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

PROGRAM = """
import json, resource, sys
if sys.argv[2:]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)
from horolog.config.broker import broker_settings
from horolog.server.main import serve
sys.exit(serve(broker_settings(json.loads(sys.argv[1]))))
"""


@asynccontextmanager
async def process(
    data_dir: Path,
    *,
    open_files: int | None = None,
    program: str = PROGRAM,
    **settings: str,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A server process, killed in the end if it still runs."""
    given = {"data.dir": str(data_dir), "listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0"}
    given["kafka.listen"] = "off"
    given |= {name.replace("_", "."): value for name, value in settings.items()}

    started = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        json.dumps(given),
        *([] if open_files is None else [str(open_files)]),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            started.kill()
        await started.wait()


async def ready(started: asyncio.subprocess.Process) -> str:
    """Wait for the ready line; returns the native address."""
    assert started.stdout is not None
    line = (await started.stdout.readline()).decode()
    match = re.fullmatch(r"ready native=(127\.0\.0\.1:\d+) http=127\.0\.0\.1:\d+\n", line)
    if match is None:
        assert started.stderr is not None
        pytest.fail(f"no ready line but {line!r}: {(await started.stderr.read()).decode()}")
    return match[1]


async def refusal(started: asyncio.subprocess.Process, *, code: int = 1) -> str:
    """What a process that cannot start says."""
    out, log = await started.communicate()
    assert started.returncode == code, log
    assert out == b""
    lines = log.decode().splitlines()
    assert len(lines) == 1, log
    return lines[0]
