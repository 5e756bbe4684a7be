"""`horolog explain topic`: whether a topic's name means a window of time, and which."""

from ...protocol.window_topics import WindowName, parse_window_name, window_name
from ...times import format_time
from ..options import Json, TopicName
from ..output import emit, json_line


def topic(topic: TopicName, as_json: Json = False) -> None:
    """Say how a topic's name is read: as an ordinary name, or as a window of another topic.

    No broker is asked. A topic that exists under such a name keeps its meaning there.
    """
    window = parse_window_name(topic)
    if as_json:
        emit([_as_json(topic, window)])
    else:
        emit(_as_text(topic, window))


def _as_json(name: str, window: WindowName | None) -> str:
    if window is None:
        return json_line(topic=name, window=False)
    return json_line(
        topic=name,
        window=True,
        base=window.base,
        from_ms=window.from_ms,
        until_ms=window.until_ms,
        by="append" if window.by_append else "create",
        empty=window.is_empty,
    )


def _as_text(name: str, window: WindowName | None) -> list[str]:
    if window is None:
        return [f"{name} is an ordinary name."]
    times = "append time" if window.by_append else "time"
    span = f"from {format_time(window.from_ms)} on, open to what is still to come"
    if window.until_ms is not None:
        span = f"from {format_time(window.from_ms)} up to, without, {format_time(window.until_ms)}"
    lines = [f"{name} is a window of {window.base}: the messages whose {times} is {span}."]
    if window.is_empty:
        lines.append("No time is in it, so there is no such topic.")
    elif (written := window_name(window)) != name:
        lines.append(
            f"{written} is the same window under another name, with positions of its own in a "
            "group."
        )
    return lines
