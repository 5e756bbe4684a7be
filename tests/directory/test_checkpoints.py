from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.storage.directory.checkpoints import (
    MalformedCheckpoint,
    decode_checkpoint,
    encode_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from horolog.storage.files import SystemFiles
from horolog.testing.logs import RecordedEvents

KEYS = st.tuples(st.text("abcXYZ019._-", min_size=1, max_size=9), st.integers(0, 2**31 - 1))


def test_golden_bytes() -> None:
    offsets = {("b.c-d", 10): 2**63 - 1, ("a", 2): 0, ("a", 10): 5}
    content = b"0\n3\na 2 0\na 10 5\nb.c-d 10 9223372036854775807\n"
    assert encode_checkpoint(offsets) == content
    assert decode_checkpoint(content) == offsets


@given(st.dictionaries(KEYS, st.integers(0, 2**63 - 1), max_size=20))
def test_what_is_encoded_decodes(offsets: dict[tuple[str, int], int]) -> None:
    assert decode_checkpoint(encode_checkpoint(offsets)) == offsets


def test_written_by_kafka(golden: Path, files: SystemFiles, events: RecordedEvents) -> None:
    path = golden / "kafka-0.10.2" / "log-directory" / "recovery-point-offset-checkpoint"
    offsets = read_checkpoint(files, path, events)
    assert offsets is not None
    assert offsets[("v1-create-time", 0)] == 700
    assert offsets[("__consumer_offsets", 0)] == 0
    assert len(offsets) == 16


def test_an_empty_file_has_no_entries() -> None:
    assert decode_checkpoint(b"") == {}


MALFORMED = [
    pytest.param(b"1\n0\n", id="version"),
    pytest.param(b"\n", id="no-version"),
    pytest.param(b"0\n", id="no-count"),
    pytest.param(b"0\nx\n", id="count-not-a-number"),
    pytest.param(b"0\n" + b"9" * 5000 + b"\n", id="count-too-long"),
    pytest.param(b"0\n2\na 0 1\n", id="too-few"),
    pytest.param(b"0\n0\na 0 1\n", id="too-many"),
    pytest.param(b"0\n1\na 0\n", id="short-line"),
    pytest.param(b"0\n1\na 0 1 2\n", id="long-line"),
    pytest.param(b"0\n1\na 0 -1\n", id="negative"),
    pytest.param(b"0\n1\na -1 1\n", id="negative-partition"),
    pytest.param(b"0\n1\na 0 9223372036854775808\n", id="above-int64"),
    pytest.param(b"0\n2\na 0 1\na 0 2\n", id="twice"),
    pytest.param(b"0\n1\na 0 1\n\n", id="empty-line"),
    pytest.param(b"0\n1\n\xff 0 1\n", id="not-text"),
    pytest.param(b"\0" * 64, id="zeros"),
]


@pytest.mark.parametrize("content", MALFORMED)
def test_malformed_is_refused_and_ignored_s_2(
    content: bytes, tmp_path: Path, files: SystemFiles, events: RecordedEvents
) -> None:
    with pytest.raises(MalformedCheckpoint):
        decode_checkpoint(content)
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    assert read_checkpoint(files, path, events) is None
    assert [fields["path"] for fields in events.named("checkpoint_ignored")] == [str(path)]


@given(st.binary(max_size=60))
def test_no_content_makes_decoding_fail_otherwise(content: bytes) -> None:
    with suppress(MalformedCheckpoint):
        assert encode_checkpoint(decode_checkpoint(content)) or not content


def test_a_missing_file_is_no_event(
    tmp_path: Path, files: SystemFiles, events: RecordedEvents
) -> None:
    assert read_checkpoint(files, tmp_path / "checkpoint", events) is None
    assert events.seen == []


def test_writing_replaces_and_leaves_nothing_else(tmp_path: Path, files: SystemFiles) -> None:
    path = tmp_path / "checkpoint"
    write_checkpoint(files, path, {("a", 0): 1, ("b", 0): 2})
    write_checkpoint(files, path, {("a", 0): 3})
    assert path.read_bytes() == b"0\n1\na 0 3\n"
    assert files.names(tmp_path) == ["checkpoint"]


def test_an_unreadable_file_is_ignored(
    tmp_path: Path, files: SystemFiles, events: RecordedEvents
) -> None:
    (tmp_path / "checkpoint").mkdir()
    assert read_checkpoint(files, tmp_path / "checkpoint", events) is None
    assert len(events.named("checkpoint_ignored")) == 1
