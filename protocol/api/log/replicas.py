"""Fields of requests that a follower may answer, or that name the leader they are meant for."""

from typing import Any

from ..schema import boolean, int32, int64


def allow_follower(*, since: int) -> Any:
    """Declare the `bool` field that permits a follower to answer a request."""
    return boolean(
        native=True,
        since=since,
        default=False,
        doc="True: a follower may answer too, up to its own high watermark. Without it only the "
        "leader does.",
    )


def seen_offset(*, since: int) -> Any:
    """Declare the `int` field with the largest high watermark that the client has seen."""
    return int64(
        native=True,
        since=since,
        default=-1,
        doc="The largest high watermark that an answer to the client had, and that it relies on: a "
        "follower whose own is below it does not answer. -1 for none.",
    )


def follower_heard_ms(*, since: int) -> Any:
    """Declare the `int` field that tells whether a follower answered, and how current it is."""
    return int64(
        native=True,
        since=since,
        default=-1,
        doc="-1: the leader has answered. Else a follower has, and so long ago it had an "
        "answer of the leader last.",
    )


def current_leader_epoch(*, since: int) -> Any:
    """Declare the `int` field with the leader epoch that a client knows."""
    return int32(
        since=since,
        default=-1,
        doc="Epoch of the leader that the client knows of; refused where it is another one than "
        "the leader's. -1 is not looked at, nor any at a broker that is alone.",
    )
