"""Fields of requests that a follower may answer, or that name the leader they are meant for."""

from typing import Any

from ..schema import boolean, int32, int64


def allow_follower(*, since: int) -> Any:
    """Declare the `bool` field that permits a follower to answer a request."""
    return boolean(
        native=True,
        since=since,
        default=False,
        doc="Whether a follower may answer, up to its own high watermark. Otherwise only the "
        "leader answers.",
    )


def seen_offset(*, since: int) -> Any:
    """Declare the `int` field with the largest high watermark that the client has seen."""
    return int64(
        native=True,
        since=since,
        default=-1,
        doc="The largest high watermark that the client has seen. A follower with a lower "
        "high watermark does not answer. -1: none.",
    )


def follower_heard_ms(*, since: int) -> Any:
    """Declare the `int` field that tells whether a follower answered, and how current it is."""
    return int64(
        native=True,
        since=since,
        default=-1,
        doc="-1 if the leader answered. If a follower answered: how long ago it last heard "
        "from the leader.",
    )


def current_leader_epoch(*, since: int) -> Any:
    """Declare the `int` field with the leader epoch that a client knows."""
    return int32(
        since=since,
        default=-1,
        doc="Leader epoch that the client knows. Refused if the leader has another epoch. -1 "
        "is not checked; a single broker checks none.",
    )
