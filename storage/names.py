"""Names in a data directory: topics, partition folders, segment files; and ids like Kafka's, which
are 128 random bits as 22 characters of base64 for URLs.

A partition's folder is `<topic>-<partition>`. Topic names may contain dots and dashes, so the
partition is what follows the *last* dash. The name of a segment file is twenty digits, its kind,
and perhaps a suffix such as `.deleted`.
"""

import base64
import re
from collections.abc import Iterable
from os.path import basename
from pathlib import Path
from random import Random
from typing import Final

from ..protocol.errors import InvalidTopic
from ..values import value_class

_ID: Final = re.compile(r"[\w-]{22}", re.ASCII)

MAX_TOPIC_NAME = 249
"""In characters. Leaves room in a 255-byte file name for the dash and five digits of
the partition."""

MAX_FILE_NAME = 255
"""In bytes: the limit of common file systems for one name."""

DELETED_SUFFIX = ".deleted"
BROKEN_SUFFIX = ".broken"
OFFSET_DIGITS = 20
MAX_OFFSET = 2**63 - 1
"""Largest offset. Twenty digits can be more: such a file is not a segment file."""

RELATIVE_OFFSET_MAX = 2**31 - 1
"""Largest distance of an offset from its segment's base offset that an index entry can hold."""

TRANSACTION_INDEX = "txnindex"
"""The kind of Kafka's indexes of aborted transactions. Horolog does not use them, but deletes them
with their segment."""

LEADER_EPOCHS = "leader-epoch-checkpoint"
"""Kafka's name of the file that says which leaders wrote the messages of a partition."""

UNFINISHED_EPOCHS = LEADER_EPOCHS + ".tmp"
"""Temporary epoch file whose writing a crash interrupted."""

METADATA_TOPIC = "__metadata"
"""Topic of the messages in the cluster's log of topics and positions. Clients do not see it, and no
topic may have this name."""

METADATA_FOLDER = "metadata-log"
"""The folder of that log in a data directory."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})", re.DOTALL)
_DELETED_FOLDER = re.compile(r".*-[0-9]+\.[0-9a-f]{16}\.deleted", re.DOTALL)
_SEGMENT_FILE = re.compile(
    r"(?P<base>[0-9]{20})\.(?P<kind>log|index|timeindex|timemap|appendtime|txnindex)(?P<suffix>(\..*)?)",
    re.DOTALL,
)


def check_topic_name(name: str) -> None:
    """Raise `InvalidTopic`, which states the rule, unless `name` may be a topic's name."""
    rule = f"1 to {MAX_TOPIC_NAME} characters of a-z A-Z 0-9 . _ - and neither '.' nor '..'"
    if not name:
        raise InvalidTopic(f"the topic name is empty; it must be {rule}")
    if len(name) > MAX_TOPIC_NAME:
        raise InvalidTopic(f"the topic name has {len(name)} characters; it must be {rule}")
    if name in {".", ".."} or _TOPIC.fullmatch(name) is None:
        raise InvalidTopic(f"the topic name {name!r} is not allowed; it must be {rule}")


def is_topic_name(name: str) -> bool:
    """Whether `name` may be a topic's name."""
    try:
        check_topic_name(name)
    except InvalidTopic:
        return False
    return True


def folder_name(topic: str, partition: int) -> str:
    """Return the name of a partition's folder."""
    return f"{topic}-{partition}"


def parse_folder_name(name: str) -> tuple[str, int] | None:
    """Return topic and partition of a folder's name; `None` if it is not a partition
    folder's name."""
    match = _FOLDER.fullmatch(name)
    if match is None or not is_topic_name(match["topic"]):
        return None
    return match["topic"], int(match["partition"])


def deleted_folder_name(topic: str, partition: int, unique: int) -> str:
    """Return the name of a deleted partition's folder until its files are removed.

    `unique` (64 bits) keeps two deleted topics of the same name apart. A long topic name is
    shortened to fit the limit of file systems.
    """
    tail = f"-{partition}.{unique:016x}{DELETED_SUFFIX}"
    return topic[: MAX_FILE_NAME - len(tail)] + tail


def is_deleted_folder_name(name: str) -> bool:
    """Whether `deleted_folder_name` can have made this name."""
    return _DELETED_FOLDER.fullmatch(name) is not None


@value_class
class SegmentFileName:
    """The parts of a segment file's name."""

    base_offset: int
    kind: str
    """`log`, `index`, `timeindex`, `timemap`, `appendtime`, or Kafka's `txnindex`."""
    suffix: str
    """What follows the kind, with its dot: empty for a live file, or `.deleted`, `.broken` and so
    on."""


def parse_segment_file(path: Path | str) -> SegmentFileName | None:
    """Return the parts of a segment file's name; `None` if it is not one."""
    match = _SEGMENT_FILE.fullmatch(basename(path))
    if match is None or int(match["base"]) > MAX_OFFSET:
        return None
    return SegmentFileName(int(match["base"]), match["kind"], match["suffix"])


def segment_bases(names: Iterable[str]) -> list[int]:
    """Return the base offsets of the segments whose log files are among these names, in the same
    order."""
    found = map(parse_segment_file, names)
    return [one.base_offset for one in found if one and one.kind == "log" and not one.suffix]


def random_id(random: Random) -> str:
    """Return a new id."""
    bits = random.getrandbits(128).to_bytes(16, "big")
    return base64.urlsafe_b64encode(bits).rstrip(b"=").decode()


def is_id(text: object) -> bool:
    """Whether `text` has the form of an id."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None
