"""Index files that are not what they were (fault 30; decision 5)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from horolog.testing.logs import LogFolder, timed_set

from .damaging import Original, check_searches, copied, fill_mixed, original, read_all

Change = Callable[[Path], None]


def missing(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zeros_behind(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(4096))


def only_zeros(path: Path) -> None:
    """What tc140 is about: a time index of zeros says that every message is from 1970."""
    path.write_bytes(bytes(12 * 1000))


def too_long(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 3)


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def shorter(path: Path) -> None:
    size = 8 if path.suffix == ".index" else 12
    path.write_bytes(path.read_bytes()[:-size])


def garbage(path: Path) -> None:
    path.write_bytes(b"\xa5" * len(path.read_bytes()))


def of_another_segment(path: Path) -> None:
    others = sorted(path.parent.glob("*" + path.suffix))
    (other,) = [o for o in others if o != path and o.stat().st_size][-1:]
    path.write_bytes(other.read_bytes())


def newer_than_the_log(path: Path) -> None:
    """Entries of messages that never reached the log."""
    if path.suffix == ".index":
        entry = (1000).to_bytes(4, "big") + (100_000).to_bytes(4, "big")
    else:
        entry = (9_999_999).to_bytes(8, "big") + (1000).to_bytes(4, "big")
    path.write_bytes(path.read_bytes() + entry)


CHANGES: list[Change] = [
    missing,
    empty,
    zeros_behind,
    only_zeros,
    too_long,
    torn,
    shorter,
    garbage,
    of_another_segment,
    newer_than_the_log,
]


@pytest.fixture(params=["clean", "killed"])
def before(request: pytest.FixtureRequest, folder: LogFolder) -> tuple[Original, bool]:
    """A log, and whether it was stopped cleanly."""
    fill_mixed(folder)
    folder.log.flusher.flush()
    if request.param == "clean":
        folder.log.close()
    found = original(folder)
    folder.let_go()
    return found, request.param == "clean"


@pytest.mark.parametrize("change", [pytest.param(c, id=c.__name__) for c in CHANGES])
@pytest.mark.parametrize(
    ("kinds", "checksums"),
    [
        pytest.param([".index"], True, id="index"),
        pytest.param([".timeindex"], True, id="timeindex"),
        pytest.param([".index", ".timeindex"], False, id="both-without-checksums"),
    ],
)
def test_30_indexes_are_rebuilt(
    before: tuple[Original, bool],
    place: Path,
    change: Change,
    kinds: list[str],
    checksums: bool,
) -> None:
    """I-5, I-6, I-40, I-41."""
    source, clean = before
    for name in (source.log_names[0], source.log_names[-1]):
        with copied(source, place) as copy:
            stem = copy.path / name.removesuffix(".log")
            for kind in kinds:
                change(stem.with_suffix(kind))
            if not checksums:
                (copy.path / "index-checksums").unlink()
            now_ms = copy.clock.now_ms()
            # Only what is older than the oldest message may go.
            log = copy.open(
                clean=clean, recovery_point=source.end_offset, retention_ms=now_ms - 900
            )
            assert read_all(copy) == (source.messages, [])
            assert check_searches(copy, source, range(980, 1060, 11)) == 0
            # What an index says is no reason to delete anything.
            assert log.expiry.plan_retention(now_ms).delete_count == 0
            assert copy.names(".broken") == []
            assert log.appender.append(timed_set(7)).first_offset == source.end_offset
            copy.restart()
            assert read_all(copy)[0][:-1] == source.messages


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_30_a_folder_in_the_place_of_an_index_is_refused_by_name(
    folder: LogFolder, kind: str
) -> None:
    fill_mixed(folder)
    folder.log.close()
    path = folder.log.segments[0].log_path.with_suffix(kind)
    path.unlink()
    path.mkdir()
    folder.open()
    with pytest.raises(OSError, match=path.name):
        folder.log.prepare()
