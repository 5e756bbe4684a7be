"""Topics whose names mean a window of time, as a client finds them."""

from ...protocol.errors import NO_ERROR, UnknownTopicOrPartition
from ...protocol.window_topics import WindowName, parse_window_name
from ..cluster.route import Route


async def find_window(cluster: Route, name: str) -> WindowName | None:
    """The window that a topic's name means in a cluster; `None` where it is a topic's own name.

    A topic that exists under such a name keeps its meaning. Raises `UnknownTopicOrPartition` for a
    window that no time is in.
    """
    window = parse_window_name(name)
    if window is None:
        return None
    found = (await cluster.topics([name, window.base])).topics
    known = {topic.name: topic for topic in found if topic.error_code == NO_ERROR}
    own, base = known.get(name), known.get(window.base)
    # A broker that serves windows answers with the id of their base.
    if own is not None and (base is None or own.topic_id != base.topic_id or not own.topic_id):
        return None
    if window.is_empty:
        raise UnknownTopicOrPartition(
            f"topic {name!r} does not exist: no time is in a window that ends at or before its "
            "start"
        )
    return window
