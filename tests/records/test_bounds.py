"""The compiled forms read nothing behind the bytes they are given."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.parametrize("form", ["compiled"], indirect=True)

BEFORE_A_WALL = """
import ctypes, mmap, random
from contextlib import suppress
from horolog.protocol.records.kernel import walk
from horolog.protocol.records.kernel import gather
from horolog.protocol.records.kernel import plain_end, rewrite
from horolog.protocol.records.kernel import scan_offset, scan_timestamp
from horolog.protocol.records.kernel import check_records
from horolog.protocol.records.kernel import gather_records
from horolog.protocol.records.kernel import RecordEncoder
from horolog.protocol.records.kernel import records_to_messages
from horolog.protocol.records.messages.sets import NewRecord, build_set

page = mmap.PAGESIZE
memory = mmap.mmap(-1, 2 * page)
wall = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + page
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(wall), page, 0) == 0
view = memoryview(memory)[:page]
chance = random.Random(SEED)
good = 0
for _ in range(5000):
    keys = [chance.choice([None, b"k", b"key"]) for _ in range(chance.randrange(1, 4))]
    sent = [NewRecord(chance.randbytes(chance.randrange(60)), key) for key in keys]
    data = build_set(sent, magic=chance.choice([0, 1, 1, 2, 2]))
    for _ in range(chance.randrange(3)):
        data[chance.randrange(len(data))] = chance.choice([0, 1, 127, 128, 255])
    if chance.random() < 0.5:
        del data[chance.randrange(len(data)):]
    start = page - len(data)
    memory[start:page] = bytes(data)
    found = walk(view, start, page, check_crc=chance.random() < 0.5, now_ms=10)
    good += found.count
    scan_offset(view, start, page, 2**60)
    scan_timestamp(view, start, page, 2**60)
    with suppress(ValueError):
        gather(view, start, page, max(found.count, 1), check_crc=chance.random() < 0.5)
    with suppress(ValueError):
        plain_end(view, start, page)
    with suppress(ValueError):
        rewrite(bytearray(), view, start, page, chance.choice([-1, 0, 1]), -1, 0, -1)
    with suppress(ValueError):
        RecordEncoder().add_messages(view, start, page)
    content = view[min(start + 61, page) : page]
    check_records(content, 0, len(content), base_timestamp_ms=0, now_ms=10)
    with suppress(ValueError):
        gather_records(content, base_offset=0, base_timestamp_ms=0)
    with suppress(ValueError):
        records_to_messages(
            bytearray(), content, 0, magic=1, base_offset=0, base_timestamp_ms=0
        )
    with suppress(ValueError):
        RecordEncoder().add_records(content, 0)
print(good)
"""


def test_nothing_is_read_behind_the_end() -> None:
    """The bytes end where memory begins that cannot be read: to touch it kills the process."""
    program = BEFORE_A_WALL.replace("SEED", "7")
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) > 1000
