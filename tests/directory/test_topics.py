import json
from pathlib import Path

import pytest

from horolog.storage.directory.topics import (
    MalformedTopics,
    NewerTopics,
    TopicEntry,
    decode_topics,
    encode_topics,
    read_topics,
    write_topics,
)
from horolog.storage.files import SystemFiles

ENTRIES = {
    "b": TopicEntry(name="b", partitions=3, overrides={"retention.ms": "-1"}),
    "a": TopicEntry(name="a", partitions=1, topic_id="6lLnpQzLQv6Rlvh8YUX-_A", gaps=True),
    "c": TopicEntry(name="c", partitions=2, deleting=True),
}


def test_the_content() -> None:
    assert json.loads(encode_topics(ENTRIES)) == {
        "version": 1,
        "topics": {
            "a": {
                "id": "6lLnpQzLQv6Rlvh8YUX-_A",
                "partitions": 1,
                "overrides": {},
                "gaps": True,
            },
            "b": {"partitions": 3, "overrides": {"retention.ms": "-1"}},
            "c": {"partitions": 2, "overrides": {}, "deleting": True},
        },
    }


def test_written_topics_are_read(tmp_path: Path, files: SystemFiles) -> None:
    path = tmp_path / "topics.json"
    assert read_topics(files, path) == {}
    write_topics(files, path, ENTRIES)
    assert read_topics(files, path) == ENTRIES


def topic(**fields: object) -> bytes:
    return json.dumps({"version": 1, "topics": {"a": fields}}).encode()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\0" * 100, id="zeros"),
        pytest.param(b"\xff", id="not-text"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b"[]", id="no-object"),
        pytest.param(b"{}", id="no-version"),
        pytest.param(b'{"version": 1}', id="no-topics"),
        pytest.param(b'{"version": 1, "topics": []}', id="topics-no-object"),
        pytest.param(b'{"version": 1, "topics": {"..": {"partitions": 1}}}', id="name"),
        pytest.param(b'{"version": 1, "topics": {"a": 1}}', id="topic-no-object"),
        pytest.param(topic(), id="no-partitions"),
        pytest.param(topic(partitions=0), id="partitions-0"),
        pytest.param(topic(partitions=1, id=7), id="id-number"),
        pytest.param(topic(partitions=1, id="short"), id="id-short"),
        pytest.param(topic(partitions=1, id="6lLnpQzLQv6Rlvh8YUX+/A"), id="id-other-base64"),
        pytest.param(topic(partitions=True), id="partitions-boolean"),
        pytest.param(topic(partitions=1, overrides=[]), id="overrides"),
        pytest.param(topic(partitions=1, overrides={"retention.ms": 1}), id="override-number"),
        pytest.param(topic(partitions=1, gaps="yes"), id="gaps"),
        pytest.param(topic(partitions=1, deleting=1), id="deleting"),
    ],
)
def test_malformed_content_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedTopics):
        decode_topics(content)


def test_a_later_version_is_told_apart() -> None:
    with pytest.raises(NewerTopics, match="version 2"):
        decode_topics(b'{"version": 2, "topics": {}}')
