"""Messages 2**31 - 1 offsets or more behind their segment's base: no index entry can hold them."""

import pytest

from horolog.protocol.records.batches.batch import build_batch
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.storage.check.verify import verify
from horolog.storage.files import SystemFiles
from horolog.testing.logs import LogFolder

T = 1_700_000_000_000
FAR = 2**31 - 1


def stored(offset: int, time_ms: int, magic: int, codec: Codec) -> bytes:
    """One message as it is stored."""
    if magic == 2:
        record = NewRecord(b"v", timestamp_ms=time_ms)
        return bytes(build_batch([record], codec=codec, base_offset=offset))
    new = [NewRecord(b"v", timestamp_ms=time_ms if magic else -1)]
    return bytes(build_set(new, magic=magic, codec=codec, base_offset=offset))


def lay(folder: LogFolder, base: int, messages: list[tuple[int, int]], how: tuple[int, Codec]):
    data = b"".join(stored(offset, time_ms, *how) for offset, time_ms in messages)
    (folder.path / f"{base:020d}.log").write_bytes(data)


FORMATS = {
    "v0": (0, Codec.NONE),
    "v1": (1, Codec.NONE),
    "v1 gzip": (1, Codec.GZIP),
    "v2": (2, Codec.NONE),
    "v2 gzip": (2, Codec.GZIP),
}


def check(folder: LogFolder, messages: list[tuple[int, int]]) -> None:
    log = folder.log
    assert log.log_end_offset == messages[-1][0] + 1
    assert folder.times() == messages
    log.prepare()
    for offset, _ in messages:
        for start in (offset, offset + 1):
            slice_ = log.reader.read(start, 1 << 20)
            following = [at for at, _ in messages if at >= start]
            assert bool(slice_.size) == bool(following)
    times = sorted({time_ms + by for _, time_ms in messages for by in (-1, 0, 1) if time_ms >= 0})
    for target in times:
        first = next(((ms, at) for at, ms in messages if ms >= target), None)
        assert folder.found(target) == [first], target
    assert not folder.events.named("torn_tail_cut")
    assert not folder.events.named("segment_damaged")


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("gap", [FAR - 1, FAR, FAR + 1, 2 * FAR + 7, 2**40])
@pytest.mark.parametrize("how", FORMATS)
def test_far(folder: LogFolder, how: str, gap: int, clean: bool) -> None:
    start = [(0, T + 50), (1, T + 10), (1 + gap, T + 30), (2 + gap, T + 70), (3 + gap, T + 60)]
    if how == "v0":
        start = [(offset, -1) for offset, _ in start]
    lay(folder, 0, start, FORMATS[how])
    folder.open(clean=clean, gaps=True, index_interval_bytes=0)
    check(folder, start)
    end = start[-1][0] + 1
    assert folder.append(T + 65) == [end]
    messages = [*start, (end, T + 65)]
    assert folder.bases() == [0, end]
    check(folder, messages)
    for again in (folder.kill_and_restart, folder.restart, lambda: folder.kill_and_restart(checkpointed=False), folder.restart):
        again()
        check(folder, messages)
    folder.log.close()
    assert [f for f in verify(SystemFiles(), folder.path) if f.error] == []
    folder.open(gaps=True, end_offset=end + 1, recovery_point=end + 1)
