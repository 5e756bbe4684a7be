"""Each bit of a small log and of its indexes, changed (fault 29; decisions 5, 20, 21)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from horolog.protocol.errors import StorageError
from horolog.protocol.records.layout import ENTRY_OVERHEAD, MESSAGE_OVERHEAD
from horolog.storage.check.verify import verify
from horolog.storage.files import SystemFiles
from horolog.testing.logs import LogFolder, timed_set

from .damaging import (
    Original,
    StoredEntry,
    check_searches,
    copied,
    fill_mixed,
    flip,
    original,
    read_all,
)

HEAD_BYTES = ENTRY_OVERHEAD + MESSAGE_OVERHEAD[1]
ALL = pytest.param(True, id="all", marks=pytest.mark.soak)
SOME = pytest.param(False, id="some")


Bits = Callable[[StoredEntry, bool], Iterator[tuple[int, int]]]


@pytest.fixture
def bits(request: pytest.FixtureRequest) -> Bits:
    """Bytes and bits to change: one of each byte in the head and some behind it, others with each
    seed, or all."""
    random = Random(f"{request.config.getoption('--hypothesis-seed')} {request.node.name}")

    def choose(entry: StoredEntry, every: bool) -> Iterator[tuple[int, int]]:
        for at in range(entry.position, entry.end):
            if every:
                yield from ((at, bit) for bit in range(8))
            elif at < entry.position + HEAD_BYTES or at == entry.end - 1 or not random.randrange(8):
                yield at, random.randrange(8)

    return choose


@pytest.fixture
def before(folder: LogFolder) -> Original:
    """Three segments, everything synced."""
    fill_mixed(folder, segments=2, segment_bytes=140)
    folder.log.appender.append(timed_set(1100))
    folder.log.flusher.flush()
    found = original(folder)
    folder.let_go()
    assert len(found.log_names) == 3
    return found


@pytest.mark.parametrize("every", [SOME, ALL])
@pytest.mark.parametrize("gaps", [False, True])
def test_29_above_the_recovery_point_the_log_ends_there(
    before: Original, bits: Bits, place: Path, gaps: bool, every: bool
) -> None:
    for entry in before.entries:
        for at, bit in bits(entry, every):
            with copied(before, place) as copy:
                flip(copy.path / entry.name, at, bit)
                log = copy.open(clean=False, gaps=gaps)
                found, refused = read_all(copy)
                if gaps and entry is before.entries[-1] and at < entry.position + 8:
                    # Where offsets may jump, the last one may be anything above the one before.
                    assert found[:-1] == before.before(entry) or found == before.before(entry)
                    continue
                assert (found, refused) == (before.before(entry), []), (entry, at, bit)
                (told,) = copy.events.named("torn_tail_cut")
                assert told["path"] == str(copy.path / entry.name)
                assert told["position"] == entry.position
                kept = copy.content([f"{entry.name}.{entry.position}.broken"])
                assert [len(content) for content in kept.values()] == [
                    (before.path / entry.name).stat().st_size - entry.position
                ]
                later = [name for name in before.log_names if name > entry.name]
                for name in later:
                    content = (before.path / name).read_bytes()
                    assert (copy.path / f"{name}.broken").read_bytes() == content
                assert log.appender.append(timed_set(7)).first_offset == len(found)


@pytest.mark.parametrize("every", [SOME, ALL])
def test_29_below_it_nothing_is_cut(before: Original, bits: Bits, place: Path, every: bool) -> None:
    """Every log is read when its indexes are gone: all that is wrong is found then."""
    active = before.log_names[-1]
    for entry in before.entries:
        lost = [
            message[0]
            for other in before.entries
            if other.name == entry.name and other.position >= entry.position
            for message in other.messages
        ]
        for at, bit in bits(entry, every):
            with copied(before, place) as copy:
                flip(copy.path / entry.name, at, bit)
                for path in copy.path.glob("*.timeindex"):
                    path.unlink()
                log = copy.open(clean=False, recovery_point=before.end_offset)
                found, refused = read_all(copy)
                assert refused == lost, (entry, at, bit)
                assert found == [m for m in before.messages if m[0] not in lost]
                (told,) = copy.events.named("segment_damaged")
                assert told["path"] == str(copy.path / entry.name)
                assert (told["position"], told["offset"]) == (entry.position, lost[0])
                assert (log.log_start_offset, log.log_end_offset) == (0, before.end_offset)
                check_searches(copy, before, range(985, 1105, 15))
                assert copy.content([".broken"]) == {}
                for name in before.log_names:
                    if name != entry.name:
                        path = before.path / name
                        assert (copy.path / name).read_bytes() == path.read_bytes()
                if entry.name == active:
                    with pytest.raises(StorageError, match="horolog repair"):
                        log.appender.append(timed_set(7))
                else:
                    assert log.appender.append(timed_set(7)).first_offset == before.end_offset


@pytest.mark.parametrize("every", [SOME, ALL])
def test_29_verify_names_file_and_byte(
    before: Original, bits: Bits, place: Path, every: bool
) -> None:
    (before.path.parent / "topics.json").write_text(
        '{"version": 1, "topics": {"copy": {"partitions": 1}}}'
    )
    for entry in before.entries:
        for at, bit in bits(entry, every):
            with copied(before, place) as copy:
                flip(copy.path / entry.name, at, bit)
                found = [f for f in verify(SystemFiles(), copy.path) if f.error]
                places = {(f.path.name, f.position) for f in found}
                assert (entry.name, entry.position) in places, (entry, at, bit, found)


def test_29_locating_and_searching_meet_changed_sizes_and_offsets(
    before: Original, place: Path
) -> None:
    """With indexes that fit, a closed segment is not read whole; what is walked is looked at."""
    closed = [entry for entry in before.entries if entry.name != before.log_names[-1]]
    for entry in closed:
        for at in range(entry.position, entry.position + ENTRY_OVERHEAD):
            for bit in range(8):
                with copied(before, place) as copy:
                    flip(copy.path / entry.name, at, bit)
                    copy.open(clean=False, recovery_point=before.end_offset)
                    check_searches(copy, before, range(985, 1105, 15))
                    assert copy.log.log_end_offset == before.end_offset


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_29_indexes(folder: LogFolder, place: Path, suffix: str, stop: str) -> None:
    fill_mixed(folder, segments=2)
    folder.log.flusher.flush()
    if stop == "clean":
        folder.log.close()
    before = original(folder)
    folder.let_go()
    flipped = 0
    for path in sorted(before.path.glob("*" + suffix)):
        content = path.read_bytes()
        for at in range(len(content)):
            for bit in range(at % 2, 8, 2):
                with copied(before, place) as copy:
                    flip(copy.path / path.name, at, bit)
                    copy.open(clean=stop == "clean", recovery_point=before.end_offset)
                    assert read_all(copy) == (before.messages, [])
                    assert check_searches(copy, before, range(985, 1065, 13)) == 0
                    if path.stem != before.log_names[-1].removesuffix(".log"):
                        # That of the last segment has lost the entry that a stop had added.
                        assert (copy.path / path.name).read_bytes() == content
                    flipped += 1
    assert flipped > 60
