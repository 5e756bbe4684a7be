"""Messages so far behind their segment's base offset that no index entry can hold them."""

from collections.abc import Sequence

import pytest

from horolog.protocol.errors import StorageError
from horolog.protocol.records.layout import Codec
from horolog.storage.check.repair import Repair
from horolog.storage.check.verify import verify
from horolog.storage.events import ignore_events
from horolog.storage.files import SystemFiles
from horolog.storage.read import reader
from horolog.testing.clock import ManualClock
from horolog.testing.logs import LogFolder, timed_set

T = 1_700_000_000_000
FAR = 2**31 - 1
"""From here on the next offset cannot be said."""

FORMATS = {
    "v0": (0, Codec.NONE),
    "v1": (1, Codec.NONE),
    "v1 gzip": (1, Codec.GZIP),
    "v2": (2, Codec.NONE),
    "v2 gzip": (2, Codec.GZIP),
}
Messages = Sequence[tuple[int, int]]
"""Offsets and times."""


def lay(folder: LogFolder, messages: Messages, how: str = "v1", *, base_offset: int = 0) -> None:
    """Write a log file with one message an entry, as a broker that is adopted has it."""
    magic, codec = FORMATS[how]
    path = folder.path / f"{base_offset:020d}.log"
    path.write_bytes(
        b"".join(
            bytes(timed_set(time_ms, magic=magic, codec=codec, base_offset=offset))
            for offset, time_ms in messages
        )
    )


def errors(folder: LogFolder) -> list[str]:
    return [found.rule for found in verify(SystemFiles(), folder.path) if found.error]


def check(folder: LogFolder, messages: Messages) -> None:
    """Every message is read from every offset, and found by time (L-20)."""
    log = folder.log
    log.prepare()
    assert (log.log_end_offset, folder.times()) == (messages[-1][0] + 1, list(messages))
    for offset, _ in messages:
        for start in (offset, offset + 1):
            left = [at for at, _ in messages if at >= start]
            found = reader.read(log, start, 1 << 20)
            assert bool(found.size) == bool(left)
            if left and found.segment is not None:
                assert found.position == found.segment.locate(left[0])
    for target_ms in {ms + by for _, ms in messages if ms >= 0 for by in (-1, 0, 1)}:
        first = next(((ms, at) for at, ms in messages if ms >= target_ms), None)
        assert folder.found(target_ms) == [first], target_ms
    assert not folder.events.named("torn_tail_cut")
    assert not folder.events.named("segment_damaged")


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("gap", [FAR - 1, FAR, FAR + 1, 2 * FAR + 7, 2**40])
@pytest.mark.parametrize("how", FORMATS)
def test_far_messages_are_served_found_and_appended_behind(
    folder: LogFolder, how: str, gap: int, clean: bool
) -> None:
    """I-30, R-5, FO-2: the next append begins a segment."""
    times = [T + 50, T + 10, T + 30, T + 70, T + 60]
    if how == "v0":
        times = [-1] * 5
    messages = list(zip([0, 1, 1 + gap, 2 + gap, 3 + gap], times, strict=True))
    lay(folder, messages, how)
    folder.open(clean=clean, gaps=True, index_interval_bytes=0)
    check(folder, messages)
    assert all(offset < FAR for offset, _ in folder.offset_entries())
    end = messages[-1][0] + 1
    assert folder.append(T + 65) == [end]
    assert folder.bases() == [0, end]
    messages.append((end, T + 65))
    check(folder, messages)
    folder.kill_and_restart()
    check(folder, messages)
    folder.restart()
    check(folder, messages)
    folder.kill_and_restart(checkpointed=False)
    check(folder, messages)
    folder.log.close()
    assert errors(folder) == []


@pytest.mark.parametrize("how", FORMATS)
def test_a_first_message_far_behind_the_file_s_name(folder: LogFolder, how: str) -> None:
    times = [-1, -1] if how == "v0" else [T, T + 5]
    messages = list(zip([100 + FAR, 2**50], times, strict=True))
    lay(folder, messages, how, base_offset=100)
    log = folder.open(clean=False, gaps=True, index_interval_bytes=0)
    assert log.log_start_offset == 100
    check(folder, messages)
    folder.restart()
    check(folder, messages)
    folder.log.close()
    assert errors(folder) == []


def test_a_cut_among_far_messages(folder: LogFolder) -> None:
    """TR-5: what is left is as if the rest had never been there."""
    messages = [(0, T), (FAR + 5, T + 9), (2**35, T + 4), (2**40, T + 20)]
    lay(folder, messages)
    log = folder.open(clean=False, gaps=True, index_interval_bytes=0)
    log.truncate(2**35 + 1)
    assert log.log_end_offset == 2**35 + 1
    assert folder.found(T + 9, T + 10) == [(T + 9, FAR + 5), None]
    log.truncate(2**33)
    assert folder.found(T + 1) == [(T + 9, FAR + 5)]
    assert folder.append(T + 30) == [2**33]
    folder.restart()
    assert folder.times() == [(0, T), (FAR + 5, T + 9), (2**33, T + 30)]


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_damage_in_front_of_far_messages_cuts_none_of_them(folder: LogFolder, bad: int) -> None:
    """Decision 20: below the recovery point it is damage, however far the offsets jump."""
    messages = [(0, T), (1, T + 1), (2**35, T + 4), (2**40, T + 20)]
    lay(folder, messages)
    path = folder.path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[39 * bad + 38] ^= 1
    path.write_bytes(data)
    log = folder.open(clean=False, gaps=True, recovery_point=2**40 + 1)
    assert log.log_end_offset == 2**40 + 1
    assert not folder.events.named("torn_tail_cut")
    with pytest.raises(StorageError, match="horolog repair"):
        folder.append(T + 30)
    log.close()
    repair(folder)
    left = [one for number, one in enumerate(messages) if number != bad]
    folder.events.seen.clear()
    folder.open(clean=False, gaps=True)
    check(folder, left)


def test_a_damaged_offset_is_no_far_message_if_near_ones_follow(folder: LogFolder) -> None:
    """Decision 20: after a kill, what follows the damaged entry is neither cut nor set aside."""
    messages = [(number, T + number) for number in range(4)]
    lay(folder, messages)
    path = folder.path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[39 + 2] ^= 1
    path.write_bytes(data)
    log = folder.open(clean=False, gaps=True, recovery_point=4)
    assert log.log_end_offset == 4
    assert not folder.events.named("torn_tail_cut")
    log.close()
    repair(folder)
    folder.events.seen.clear()
    folder.open(clean=False, gaps=True)
    check(folder, [message for message in messages if message[0] != 1])


def test_a_repaired_log_goes_on_where_a_far_message_was_lost(folder: LogFolder) -> None:
    """No offset that was synced comes twice."""
    lay(folder, [(0, T), (2**40, T + 20)])
    folder.open(clean=False, gaps=True, recovery_point=2**40 + 1).close()
    path = folder.path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    checkpoint = folder.path.parent / "recovery-point-offset-checkpoint"
    checkpoint.write_text(f"0\n1\nt 0 {2**40 + 1}\n")
    repair(folder)
    folder.open(clean=False, gaps=True, recovery_point=2**40 + 1)
    assert folder.append(T + 30) == [2**40 + 1]
    assert folder.times() == [(0, T), (2**40 + 1, T + 30)]


def repair(folder: LogFolder) -> None:
    repairing = Repair(SystemFiles(), folder.path, clock=ManualClock(), observe=ignore_events)
    repairing.carry_out(repairing.plan())
    repairing.release()
    assert errors(folder) == []
