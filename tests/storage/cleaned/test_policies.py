"""Logs of compacted topics: what they refuse, and what retention leaves (decision 43)."""

from collections.abc import Callable, Sequence
from itertools import product

import pytest

from horolog.protocol.errors import InvalidRecord
from horolog.protocol.records.batch import NewRecord
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import build_set
from horolog.storage.log.log import Log
from horolog.testing.logs import LogFolder, by_set

NOW_MS = 1_479_144_272_509
KEYED = NewRecord(b"value" * 9, b"key", NOW_MS)
DELETED = NewRecord(None, b"key", NOW_MS)
EMPTY_KEY = NewRecord(b"value", b"", NOW_MS)
WITHOUT = NewRecord(b"value", None, NOW_MS)
LARGE = 4_000
"""Records; more than a walk looks at one by one."""


def a_set(records: Sequence[NewRecord], magic: int = 1, codec: Codec = Codec.NONE) -> bytes:
    """Format v0 has no times."""
    timed = records if magic else [NewRecord(one.value, one.key) for one in records]
    return bytes(build_set(timed, magic=magic, codec=codec))


SENT = [
    pytest.param(magic, codec, id=f"v{magic}-{codec.name.lower()}")
    for magic, codec in product((0, 1, 2), Codec)
    if codec is not Codec.ZSTD or magic == 2
]


def alone(log: Log, sent: bytes) -> None:
    log.appender.append(sent)


def among_others(log: Log, sent: bytes) -> None:
    """Append it with other sets in one run."""
    good = a_set([KEYED])
    outcomes = by_set(log.appender.append_sets([good, sent, good]))
    assert [isinstance(outcome, Exception) for outcome in outcomes[::2]] == [False, False]
    if isinstance(outcomes[1], Exception):
        raise outcomes[1]


def in_a_thread(log: Log, sent: bytes) -> None:
    """As large sets are."""
    log.appender.end_append(log.appender.begin_append(sent)())


WAYS = [alone, among_others, in_a_thread]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Callable[[Log, bytes], None]:
    """How a set comes into a log."""
    found: Callable[[Log, bytes], None] = request.param
    return found


@pytest.mark.parametrize(("magic", "codec"), SENT)
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_message_without_a_key_refuses_its_set(
    folder: LogFolder, way: Callable[[Log, bytes], None], policy: str, magic: int, codec: Codec
) -> None:
    log = folder.open(cleanup_policy=policy)
    way(log, a_set([KEYED, DELETED, EMPTY_KEY], magic=magic, codec=codec))
    end_offset = log.log_end_offset
    for records in ([WITHOUT], [KEYED, DELETED, WITHOUT, KEYED], [KEYED] * LARGE + [WITHOUT]):
        sent = a_set(records, magic=magic, codec=codec)
        with pytest.raises(InvalidRecord, match="has no key; the topic is compacted"):
            way(log, sent)
        if way is among_others:
            end_offset += 2
        assert log.log_end_offset == end_offset
    assert all(record.key is not None for record in folder.records())


@pytest.mark.parametrize("stored", ["0.9.0", "0.10.2", "0.11.0"])
@pytest.mark.parametrize(("magic", "codec"), SENT)
def test_also_where_it_is_stored_in_another_format(
    folder: LogFolder, stored: str, magic: int, codec: Codec
) -> None:
    log = folder.open(
        cleanup_policy="compact", message_format_version=stored, compression_type="gzip"
    )
    with pytest.raises(InvalidRecord, match="has no key"):
        log.appender.append(a_set([KEYED, WITHOUT], magic=magic, codec=codec))
    log.appender.append(a_set([KEYED, DELETED], magic=magic, codec=codec))
    assert [record.key for record in folder.records()] == [b"key", b"key"]


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_topic_that_is_not_compacted_takes_it(
    folder: LogFolder, way: Callable[[Log, bytes], None], magic: int, timestamp_type: str
) -> None:
    log = folder.open(cleanup_policy="delete", message_timestamp_type=timestamp_type)
    way(log, a_set([KEYED, WITHOUT], magic=magic))
    assert None in [record.key for record in folder.records()]


def test_which_message_has_no_key_is_said(folder: LogFolder) -> None:
    log = folder.open(cleanup_policy="compact")
    for magic, codec, where in (
        (1, Codec.NONE, "the message at byte "),
        (1, Codec.GZIP, "inside the compressed message at byte 0 of the set: the message at byte "),
        (2, Codec.NONE, "the batch at byte 0: record 1 "),
        (2, Codec.GZIP, "the batch at byte 0: record 1 "),
    ):
        with pytest.raises(InvalidRecord, match=f": {where}"):
            log.appender.append(a_set([KEYED, WITHOUT], magic=magic, codec=codec))


def test_what_was_stored_without_a_key_before_stays_and_is_counted(folder: LogFolder) -> None:
    log = folder.open()
    log.appender.append(a_set([WITHOUT, KEYED], magic=2))
    folder.set(cleanup_policy="compact")
    log.appender.append(a_set([KEYED], magic=2))
    for _ in range(2):
        assert [record.key for record in folder.records()] == [None, b"key", b"key"]
        assert folder.log.log_end_offset - folder.log.log_start_offset == 3
        folder.kill_and_restart()


@pytest.mark.parametrize(
    ("policy", "bases"),
    [
        pytest.param("delete", [2, 3], id="delete"),
        pytest.param("compact", [0, 1, 2, 3], id="compact"),
        pytest.param("compact,delete", [2, 3], id="both"),
        pytest.param("delete,compact", [2, 3], id="both, the other way round"),
    ],
)
@pytest.mark.parametrize("limit", ["retention_ms", "retention_bytes"])
def test_a_topic_that_is_only_compacted_is_exempt_from_retention(
    folder: LogFolder, policy: str, bases: list[int], limit: str
) -> None:
    """RT-1: neither age nor size deletes anything where `delete` is no policy."""
    log = folder.open(cleanup_policy=policy, retention_ms=-1)
    for number, age_ms in enumerate((10_000, 10_000, 0, 0)):
        if number:
            log.appender.roll()
        log.appender.append(a_set([NewRecord(b"v", b"k", NOW_MS - age_ms)]))
    size_bytes = log.segments[0].size_bytes
    folder.set(**{limit: 1_000 if limit == "retention_ms" else 2 * size_bytes})
    log.expiry.maintain(NOW_MS)
    assert folder.bases() == bases
    if policy == "compact":
        reasons = [one.reason for one in log.expiry.describe(NOW_MS).segments]
        assert set(reasons) == {"cleanup.policy is compact, so it stays; it is not cleaned yet"}
        assert log.expiry.pinned_segments(0) == 0


def test_an_idle_segment_past_retention_of_a_compacted_topic_is_not_rolled(
    folder: LogFolder,
) -> None:
    """Decision 17 is for what is deleted."""
    log = folder.open(cleanup_policy="compact", retention_ms=1_000)
    log.appender.append(a_set([NewRecord(b"v", b"k", NOW_MS - 5_000)]))
    assert not log.expiry.maintain(NOW_MS).roll_active
    assert folder.bases() == [0]
    assert not folder.events.named("messages_past_retention")
