"""Window topics: topics that are not stored, because their name denotes a window of another topic.

Handlers that read look up the window of a name. For all other handlers such a topic does not exist,
and cannot be created.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from ..protocol.errors import CodedError, InvalidTopic, TopicAlreadyExists, UnknownTopicOrPartition
from ..protocol.window_topics import (
    WindowName,
    find_window,
    may_name_window,
    not_a_topic,
    parse_window_name,
    read_only,
)
from ..storage.read.window_sets import LogWindow
from ..storage.read.windows import ReadWindow
from .work import Turns

_NAMES_AT_ONCE: Final = 64
"""Names that are parsed without giving way to other requests: some 10 microseconds each."""


def guarded_name(exists: Callable[[str], bool], name: str) -> str:
    """Return the topic on which a client needs a right to use a name: for a window its base topic,
    whether that exists or not."""
    if not may_name_window(name) or exists(name):
        return name
    window = parse_window_name(name)
    return name if window is None else window.base


def is_reserved(topics: Container[str], name: str) -> bool:
    """Whether a name has the form of a window's name. No topic can be created with such a name."""
    return may_name_window(name) and name not in topics and parse_window_name(name) is not None


def may_name_windows(stored: Container[str], topics: Sequence[Any]) -> bool:
    """Whether the topics of a request are windows, or so many have names to be parsed that
    `split_windows` has to do it in turns."""
    parsed = 0
    for topic in topics:
        if may_name_window(topic.name) and topic.name not in stored:
            if parsed == _NAMES_AT_ONCE or find_window(stored, topic.name):
                return True
            parsed += 1
    return False


async def split_windows(
    stored: Container[str], topics: Sequence[Any], turns: Turns
) -> tuple[list[tuple[Any, WindowName]], list[Any]]:
    """Split the topics of a request: return its window topics, and the others."""
    windows, others = [], []
    for topic in topics:
        await turns.give_way()
        window = find_window(stored, topic.name)
        if window is None:
            others.append(topic)
        else:
            windows.append((topic, window))
    return windows, others


def log_window(window: WindowName) -> LogWindow:
    """Return the window in the form in which a log is searched for it."""
    until_ms = -1 if window.until_ms is None else window.until_ms
    return LogWindow(ReadWindow.between(window.from_ms, until_ms), window.by_append)


def check_not_window(topics: Container[str], name: str) -> None:
    """Raise `InvalidTopic` for a window of a topic that exists."""
    window = find_window(topics, name)
    if window is not None:
        raise InvalidTopic(not_a_topic(name, window))


def check_creation(topics: Mapping[str, object], name: str) -> None:
    """Raise an error if a name has the form of a window's name: no topic is created with it."""
    error = creation_error(topics, name)
    if error is not None:
        raise error


def creation_error(topics: Container[str], name: str) -> CodedError | None:
    """Return the error that `check_creation` raises, or `None`."""
    if not is_reserved(topics, name):
        return None
    window = find_window(topics, name)
    if window is not None:
        return TopicAlreadyExists(f"{read_only(name, window)}. Choose a name that is no window's")
    return InvalidTopic(_reserved(name))


def check_on_demand(topics: Container[str], name: str) -> None:
    """Like `check_creation`, for a topic that would be created because a client produces to it or
    requests its metadata."""
    if is_reserved(topics, name):
        check_not_window(topics, name)
        raise UnknownTopicOrPartition(f"{_reserved(name)}. It is never made")


def _reserved(name: str) -> str:
    window = parse_window_name(name)
    assert window is not None
    if window.is_empty:
        return f"{name!r} is the name of a window of {window.base} in which no time is"
    return f"{name!r} is the name of a window of {window.base!r}, which does not exist"
