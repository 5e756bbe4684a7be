"""The warning about messages that were past retention when they were appended."""

from .errors import note
from .output import plural


def warn_past_retention(count: int, topic: str) -> None:
    """Say how many messages retention deletes soon; nothing if there is none."""
    if count:
        are, their = ("is", "its time") if count == 1 else ("are", "their times")
        note(
            f"{count:,} {plural(count, 'message')} of {topic} {are} past retention already, by "
            f"{their}, and deleted soon: to keep such messages, "
            f"`horolog topic alter {topic} --set retention.ms=-1`"
        )
