import pytest

from horolog.protocol.errors import InvalidTopic
from horolog.storage.names import (
    MAX_FILE_NAME,
    MAX_TOPIC_NAME,
    SegmentFileName,
    check_topic_name,
    deleted_folder_name,
    folder_name,
    is_deleted_folder_name,
    parse_folder_name,
    parse_segment_file,
)


@pytest.mark.parametrize(
    "name",
    ["a", "A.b_c-9", "...", "a.index", "b-0", "-", "x" * MAX_TOPIC_NAME, "__consumer_offsets"],
)
def test_allowed_topic_names(name: str) -> None:
    check_topic_name(name)
    assert parse_folder_name(folder_name(name, 7)) == (name, 7)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "a/b", "ä", "a\n", "a\0", "x" * (MAX_TOPIC_NAME + 1), "a\ud800"]
)
def test_refused_topic_names_say_the_rule(name: str) -> None:
    with pytest.raises(InvalidTopic, match=r"1 to 249 characters of a-z A-Z 0-9 \. _ -"):
        check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("a-0", ("a", 0), id="plain"),
        pytest.param("a.index-3", ("a.index", 3), id="S-12-dots"),
        pytest.param("a-1-2", ("a-1", 2), id="S-12-last-dash"),
        pytest.param("a--2", ("a-", 2), id="topic-ends-with-dash"),
        pytest.param("a", None, id="no-dash"),
        pytest.param("a-", None, id="no-number"),
        pytest.param("-1", None, id="no-topic"),
        pytest.param("a-01", None, id="leading-zero"),
        pytest.param("a-1\n", None, id="line-feed"),
        pytest.param("a-\u0661", None, id="other-digits"),
        pytest.param("..-1", None, id="topic-not-allowed"),
        pytest.param("a b-1", None, id="space"),
        pytest.param("a-0.00000000000000ff.deleted", None, id="deleted"),
        pytest.param("a-0.5f2c-delete", None, id="kafka-deleted"),
        pytest.param("a-12345678901", None, id="number-too-long"),
    ],
)
def test_parse_folder_name(name: str, expected: tuple[str, int] | None) -> None:
    assert parse_folder_name(name) == expected


@pytest.mark.parametrize("topic", ["a", "a-0.00000000000000ff.deleted", "x" * MAX_TOPIC_NAME])
def test_deleted_folder_names(topic: str) -> None:
    name = deleted_folder_name(topic, 99999, 255)
    assert is_deleted_folder_name(name)
    assert parse_folder_name(name) is None
    assert len(name) <= MAX_FILE_NAME
    assert not is_deleted_folder_name(folder_name(topic, 0))


@pytest.mark.parametrize("name", ["photos.deleted", "a-0.deleted", "a-0.00000000000000fg.deleted"])
def test_other_people_s_folders_are_not_ours_to_delete(name: str) -> None:
    assert not is_deleted_folder_name(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000007.log", SegmentFileName(7, "log", "")),
        ("00000000000000000007.timeindex", SegmentFileName(7, "timeindex", "")),
        ("00000000000000000007.index.deleted", SegmentFileName(7, "index", ".deleted")),
        ("00000000000000000007.log.broken", SegmentFileName(7, "log", ".broken")),
        ("7.log", None),
        ("00000000000000000007.logs", None),
        ("00000000000000000007.log~", None),
        ("x.log", None),
    ],
)
def test_parse_segment_file(name: str, expected: SegmentFileName | None) -> None:
    """I-1, D12."""
    assert parse_segment_file(name) == expected
