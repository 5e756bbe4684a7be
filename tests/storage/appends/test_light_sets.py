"""Appends in two parts, and which sets are taken in passing."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.errors import HorologError, InvalidRecord, MessageTooLarge, StorageError
from horolog.protocol.records.batch import NewRecord, build_batch
from horolog.protocol.records.layout import Codec
from horolog.storage.log.admission import takes_long
from horolog.storage.log.admitted import Appended
from horolog.testing.logs import LogFolder, timed_set, untimed_set

NOW = 1_479_144_272_509
HEAVY = bytes(timed_set(NOW, value=bytes(300_000), magic=2, codec=Codec.ZSTD))
SETS = [
    b"",
    bytes(untimed_set(3)),
    bytes(untimed_set(3, codec=Codec.GZIP)),
    bytes(timed_set(NOW - 5, -1, NOW)),
    bytes(timed_set(NOW - 5, NOW, codec=Codec.LZ4)),
    bytes(timed_set(NOW - 5, NOW, codec=Codec.SNAPPY)) * 2,
    bytes(timed_set(NOW, NOW - 5, magic=2)),
    bytes(timed_set(NOW, NOW - 5, magic=2, codec=Codec.ZSTD)) * 2,
    HEAVY,
    HEAVY[:-1],
]
FORMS = list(
    itertools.product(
        ["CreateTime", "LogAppendTime"],
        ["producer", "uncompressed", "gzip", "lz4"],
        ["0.9.0", "0.10.0", "0.11.0", None],
    )
)


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[LogFolder]:
    folder = LogFolder(tmp_path / "t-0")
    yield folder
    folder.let_go()


def begun_append(folder: LogFolder, sent: bytes) -> Any:
    return folder.log.appender.begin_append(sent)()


def outcome_of(call: Callable[[], Any]) -> Any:
    """What it returns, or the class of what it raises."""
    try:
        return call()
    except HorologError as error:
        return type(error)


def told(outcome: Any) -> object:
    if isinstance(outcome, Appended):
        return outcome.first_offset, outcome.last_offset, outcome.append_time_ms
    return outcome


@pytest.mark.parametrize(("kind", "compression", "version"), FORMS)
def test_an_append_in_two_parts_stores_the_same(
    folder: LogFolder, twin: LogFolder, kind: str, compression: str, version: str | None
) -> None:
    settings: dict[str, Any] = {
        "message_timestamp_type": kind,
        "compression_type": compression,
        "segment_bytes": 1_000_000,
        "index_interval_bytes": 100,
    }
    if version is not None:
        settings["message_format_version"] = version
    folder.open(**settings)
    twin.open(**settings)
    for sent in SETS * 2:
        # The first part is done some time before the second, and in another segment.
        begun = outcome_of(partial(begun_append, twin, sent))
        folder.clock.advance(1000)
        twin.clock.advance(1000)
        twin.log.appender.roll()
        folder.log.appender.roll()
        expected = outcome_of(partial(folder.log.appender.append, sent))
        if not isinstance(begun, type):
            begun = outcome_of(partial(twin.log.appender.end_append, begun))
        assert told(begun) == told(expected)
    assert twin.stored() == folder.stored()
    assert twin.time_entries() == folder.time_entries()
    assert twin.log.appender.end_append(None).count == 0


def test_a_log_that_was_cut_meanwhile_refuses_the_second_part(folder: LogFolder) -> None:
    log = folder.open()
    log.appender.append(timed_set(NOW, NOW))
    begun = log.appender.begin_append(HEAVY)()
    log.truncate(1)
    with pytest.raises(StorageError, match="ends at offset 1 and ended at 2"):
        log.appender.end_append(begun)
    assert len(folder.records()) == 1


def in_passing(folder: LogFolder, *sent: bytes, passes: int = 100) -> list[Appended | Exception]:
    goes_on = iter([True] * passes)
    return folder.log.appender.append_sets(sent, goes_on=lambda: next(goes_on, False))


def test_light_sets_are_taken_up_to_the_first_that_is_not(folder: LogFolder) -> None:
    folder.open()
    light = bytes(timed_set(NOW, magic=2, codec=Codec.GZIP))
    outcomes = in_passing(folder, light, light, HEAVY, light)
    assert [isinstance(each, Appended) for each in outcomes] == [True, True]
    assert len(folder.records()) == 2
    assert in_passing(folder, HEAVY) == []
    assert len(in_passing(folder, light, light, light, passes=2)) == 2


def test_what_is_wrong_is_told_in_passing(folder: LogFolder) -> None:
    folder.open()
    bad = bytearray(timed_set(NOW, magic=2, codec=Codec.GZIP))
    bad[-1] ^= 1
    (outcome,) = in_passing(folder, bytes(bad))
    assert isinstance(outcome, HorologError)


def test_batches_behind_a_message_are_refused_in_passing(folder: LogFolder) -> None:
    """None of them is opened, so that their number does not count."""
    folder.open()
    batch = bytes(build_batch([NewRecord(b"x" * 100)]))
    (outcome,) = in_passing(folder, bytes(timed_set(NOW)) + batch * 129)
    assert isinstance(outcome, InvalidRecord)


def test_a_large_message_is_refused_in_its_turn(folder: LogFolder) -> None:
    folder.open(max_message_bytes=1000)
    large = bytes(timed_set(NOW, value=bytes(2000)))
    assert in_passing(folder, large) == []
    with pytest.raises(MessageTooLarge):
        begun_append(folder, large)


def test_which_sets_are_light(folder: LogFolder) -> None:
    settings = folder.open().settings
    batch = bytes(build_batch([NewRecord(b"x" * 100)]))
    assert not takes_long(batch * 128, settings)
    assert takes_long(batch * 129, settings)
    assert not takes_long(bytes(timed_set(NOW, value=bytes(200_000))), settings)
    assert takes_long(bytes(timed_set(NOW, value=bytes(300_000))), settings)
    folder.set(compression_type="gzip")
    assert takes_long(bytes(timed_set(NOW, value=bytes(200_000))), folder.log.settings)
