"""Closed segments read without a broker."""

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from horolog import blocking
from horolog.client.produce.producer import Compression
from horolog.pipeline.option_values import OptionError
from horolog.pipeline.planning import DataLoss
from horolog.protocol.errors import CorruptMessage
from horolog.storage.index.index_checksums import format_checksums, parse_checksums
from horolog.storage.index.index_file import TIME_ENTRY
from horolog.testing.broker import BrokerThread
from horolog.testing.crashing import in_child

from .sources import T0_MS, parts, read, rows, source

SMALL = {"segment.bytes": 20_000, "retention.ms": -1, "segment.ms": 2**40}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five closed segments, compressed and plain, of a topic whose name has a dash."""
    with BrokerThread(tmp_path / "data", SMALL) as broker:
        halves: tuple[tuple[int, Compression], ...] = ((0, "none"), (60, "lz4"))
        for base, compression in halves:
            with blocking.Producer(broker.address, compression=compression) as producer:
                for first in range(base, base + 60):
                    producer.send_batch(
                        "a-b",
                        [bytes(1000), b"%d" % first],
                        timestamps_ms=[T0_MS + first, T0_MS + first],
                    )
                producer.send_batch("a-b", [bytes(19_000)], timestamps_ms=T0_MS + 200)
    return tmp_path / "data" / "a-b-0"


def offsets(**options: object) -> list[int]:
    made = source(None, **options)
    return [row["offset"] for row in read(made)]


def without_time_maps(folder: Path) -> None:
    """As a version leaves it that knows none."""
    file = folder / "index-checksums"
    lines = {
        base_offset: replace(line, time_map=None)
        for base_offset, line in parse_checksums(file.read_bytes()).items()
    }
    file.write_bytes(format_checksums(lines))
    for time_map in folder.glob("*.timemap"):
        time_map.unlink()


def test_all_but_the_last_segment(folder: Path) -> None:
    logs = sorted(folder.glob("*.log"))
    last = int(logs[-1].stem)
    assert len(logs) > 3
    assert offsets(segments_path=folder) == list(range(last))


def test_a_time_range_is_exact_and_leaves_out_files(folder: Path) -> None:
    bounds = {"startingTimestamp": T0_MS + 50, "endingTimestamp": T0_MS + 52}
    assert offsets(segments_path=folder, **bounds) == [100, 101, 102, 103]
    made = source(None, segments_path=folder, startingTimestamp=T0_MS + 50)
    planned = parts(made.reader(made.schema()).partitions())
    assert 0 < len(planned) < len(list(folder.glob("*.log"))) - 1


@pytest.mark.parametrize("what", ["short", "other", "gone", "longer log", "no checksums"])
def test_an_index_that_may_be_wrong_leaves_out_nothing(folder: Path, what: str) -> None:
    without_time_maps(folder)
    bounds = {"startingTimestamp": T0_MS + 50, "endingTimestamp": T0_MS + 52}
    for index in folder.glob("*.timeindex"):
        log = index.with_suffix(".log")
        if what == "short":
            index.write_bytes(index.read_bytes()[:12])
        elif what == "other":
            index.write_bytes(TIME_ENTRY.pack(1, 1) * (index.stat().st_size // TIME_ENTRY.size))
        elif what == "gone":
            index.unlink()
        elif what == "longer log":
            log.write_bytes(log.read_bytes() + bytes(1))
    if what == "no checksums":
        (folder / "index-checksums").unlink()
    made = source(None, segments_path=folder, **bounds)
    planned = parts(made.reader(made.schema()).partitions())
    assert len(planned) == len(list(folder.glob("*.log"))) - 1
    if what != "longer log":  # which ends in no entry
        assert offsets(segments_path=folder, **bounds) == [100, 101, 102, 103]


def test_a_time_index_alone_leaves_out_files(folder: Path) -> None:
    without_time_maps(folder)
    made = source(None, segments_path=folder, startingTimestamp=T0_MS + 50)
    planned = parts(made.reader(made.schema()).partitions())
    assert 0 < len(planned) < len(list(folder.glob("*.log"))) - 1
    assert offsets(segments_path=folder, startingTimestamp=T0_MS + 150) == [120]


def test_a_file_that_is_gone_or_damaged(folder: Path) -> None:
    made = source(None, segments_path=folder)
    reader = made.reader(made.schema())
    partitions = list(reader.partitions())
    log = min(folder.glob("*.log"))
    content = bytearray(log.read_bytes())
    content[3000] ^= 1
    log.write_bytes(content)
    with pytest.raises(CorruptMessage):
        rows(reader, partitions, made.schema(), made)
    log.unlink()
    with pytest.raises(DataLoss, match="is not now"):
        rows(reader, partitions, made.schema(), made)


@pytest.mark.parametrize("before", [1, 7, 20, 33])
def test_what_was_trimmed_is_not_read(tmp_path: Path, before: int) -> None:
    """The log begins inside of a segment whose file still has what is before it."""
    with BrokerThread(tmp_path / "data", SMALL) as broker:
        with blocking.Producer(broker.address) as producer:
            for first in range(0, 60, 2):
                producer.send_batch("t", [bytes(900)] * 2, timestamps_ms=[T0_MS + first] * 2)
        with blocking.Admin(broker.address) as admin:
            assert admin.delete_records("t", 0, before) == before
        folder = tmp_path / "data" / "t-0"
        last = max(int(log.stem) for log in folder.glob("*.log"))
        assert last > before
        assert offsets(segments_path=folder) == list(range(before, last))
        bounds = {"startingTimestamp": T0_MS, "endingTimestamp": T0_MS + before + 1}
        inside = [offset for offset in range(before, last) if offset // 2 * 2 <= before]
        assert offsets(segments_path=folder, **bounds) == inside


def test_a_checkpoint_of_log_starts_that_cannot_be_read(folder: Path) -> None:
    (folder.parent / "log-start-offset-checkpoint").write_text("0\n1\nnonsense\n")
    with pytest.raises(OptionError, match=r"log-start-offset-checkpoint .*line 3"):
        offsets(segments_path=folder)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "t"}, "leave out subscribe"),
        ({"startingOffsets": "earliest"}, "not startingOffsets"),
        ({"includeAppendTime": "true"}, "no append times"),
    ],
)
def test_options_that_need_a_broker(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        offsets(segments_path="t-0", **options)


def test_a_folder_of_no_partition(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no folder of a partition"):
        offsets(segments_path=tmp_path / "none-0")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a while")
@pytest.mark.parametrize("closed", ["directory", "folder", "file", "checksums"])
def test_files_of_another_account_are_no_empty_topic(folder: Path, closed: str) -> None:
    """The broker's files are its own unless a setting says otherwise."""
    assert folder.stat().st_mode & 0o777 == 0o700
    first = min(folder.glob("*.log"))
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        copy = Path(shutil.copytree(folder, place / "data" / folder.name))
        for path in (copy.parent, copy, *copy.iterdir()):
            path.chmod(0o755 if path.is_dir() else 0o644)
        parts = {"directory": copy.parent, "folder": copy, "file": copy / first.name}
        parts.get(closed, copy / "index-checksums").chmod(0)

        def other_account() -> None:
            os.setgid(65534)
            os.setuid(65534)
            bounds = {"startingTimestamp": T0_MS + 50} if closed == "checksums" else {}
            with pytest.raises(OptionError, match=r'may not read .*data\.file\.mode = "0640"'):
                offsets(segments_path=copy, **bounds)

        offsets(segments_path=copy)  # What is imported late may not be readable later.
        assert in_child(other_account) == 0, "see standard error"
