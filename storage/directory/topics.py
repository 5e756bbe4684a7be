"""The topics file: the topics of a data directory, with their settings.

`topics.json` is replaced as a whole (temporary file, sync, rename). Its content:

    {"version": 1,
     "topics": {"<name>": {"id": "6lLnpQzLQv6Rlvh8YUXcFA",
                           "partitions": 3,
                           "overrides": {"retention.ms": "-1"},
                           "gaps": true,          only when its offsets may have gaps
                           "deleting": true}},    only while it is being deleted
     "metadata_offset": 17}                       only of a cluster member

Folders are created before a topic is written here, and renamed before it is removed, so a start can
tell an unfinished creation from an unfinished deletion. Topics in files of older versions have no
id until a start gives them one.

The topics of a cluster member are in its metadata log (`storage/metadata`). This file has the part
of them that was applied here. `metadata_offset` is an offset of that log: all records below it were
committed when the file was written.
"""

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, field
from pathlib import Path
from typing import Any, Final

from ...values import value_class
from ..files import Files, replace_file
from ..names import MAX_OFFSET, is_id, is_topic_name

TOPICS_FILE: Final = "topics.json"
VERSION: Final = 1


@value_class
class TopicEntry:
    """One topic in the topics file."""

    _: KW_ONLY

    name: str
    partitions: int
    topic_id: str = ""
    """Random, so that a topic that was deleted and created again can be told apart. Empty until a
    start gives the topic an id."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """The topic's own settings: canonical name -> value as text."""
    gaps: bool = False
    """Whether its logs may hold bytes written elsewhere, whose offsets may have gaps."""
    deleting: bool = False


class MalformedTopics(ValueError):
    """The topics file's content is malformed. The text says where and why."""


class NewerTopics(ValueError):
    """The topics file was written by a later version of Horolog."""


def encode_topics(entries: Mapping[str, TopicEntry], metadata_offset: int | None = None) -> bytes:
    """Return the content of a topics file, sorted by topic name."""
    topics: dict[str, dict[str, object]] = {}
    for name, entry in sorted(entries.items()):
        topic: dict[str, object] = {"id": entry.topic_id} if entry.topic_id else {}
        topic["partitions"] = entry.partitions
        topic["overrides"] = dict(sorted(entry.overrides.items()))
        if entry.gaps:
            topic["gaps"] = True
        if entry.deleting:
            topic["deleting"] = True
        topics[name] = topic
    document: dict[str, object] = {"version": VERSION, "topics": topics}
    if metadata_offset is not None:
        document["metadata_offset"] = metadata_offset
    return (json.dumps(document, indent=1) + "\n").encode()


def decode_topics(content: bytes) -> dict[str, TopicEntry]:
    """Return the topics in a topics file's content, by name.

    Raises `MalformedTopics` for anything that `encode_topics` cannot have written, except values of
    settings (they are checked when they are used), and `NewerTopics` for a later version.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise MalformedTopics(f"it is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("version"), int):
        raise MalformedTopics("it has no version")
    if document["version"] > VERSION:
        raise NewerTopics(
            f"it has version {document['version']}, this Horolog knows up to {VERSION}"
        )
    topics = document.get("topics")
    if not isinstance(topics, dict):
        raise MalformedTopics("it has no topics")
    return {name: _decode_topic(name, value) for name, value in topics.items()}


def _decode_topic(name: str, value: Any) -> TopicEntry:
    if not is_topic_name(name):
        raise MalformedTopics(f"{name[:80]!r} is not a topic name")
    if not isinstance(value, dict):
        raise MalformedTopics(f"topic {name}: it is not an object")
    topic_id = value.get("id", "")
    if topic_id != "" and not is_id(topic_id):
        raise MalformedTopics(
            f"topic {name}: id is {topic_id!r}, not 22 characters of base64 for URLs"
        )
    partitions = value.get("partitions")
    if type(partitions) is not int or partitions < 1:
        raise MalformedTopics(f"topic {name}: partitions is {partitions!r}, not 1 or more")
    overrides = value.get("overrides", {})
    if not isinstance(overrides, dict) or not all(isinstance(v, str) for v in overrides.values()):
        raise MalformedTopics(f"topic {name}: overrides are not texts by name")
    flags = {flag: value.get(flag, False) for flag in ("gaps", "deleting")}
    for flag, state in flags.items():
        if not isinstance(state, bool):
            raise MalformedTopics(f"topic {name}: {flag} is neither true nor false")
    return TopicEntry(
        name=name, partitions=partitions, topic_id=topic_id, overrides=overrides, **flags
    )


def read_topics(files: Files, path: Path) -> dict[str, TopicEntry]:
    """Return the topics of the file at `path`; none if it is missing.

    Raises `OSError`, `MalformedTopics`, `NewerTopics`.
    """
    if not files.exists(path):
        return {}
    return decode_topics(files.read_bytes(path))


def read_metadata_offset(files: Files, path: Path) -> int:
    """Return the `metadata_offset` of the file at `path`, 0 if it has none or is invalid.

    Raises `OSError`.
    """
    if not files.exists(path):
        return 0
    try:
        document = json.loads(files.read_bytes(path))
    except (ValueError, RecursionError):
        return 0
    offset = document.get("metadata_offset") if isinstance(document, dict) else None
    return offset if type(offset) is int and 0 <= offset <= MAX_OFFSET else 0


def write_topics(
    files: Files,
    path: Path,
    entries: Mapping[str, TopicEntry],
    metadata_offset: int | None = None,
) -> None:
    """Replace the file at `path` atomically and durably. Raises `OSError`."""
    replace_file(files, path, encode_topics(entries, metadata_offset))
