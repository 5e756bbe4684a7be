"""The warning about messages that were past retention when they were appended."""

from .errors import note
from .output import plural


def note_past_retention(count: int, topic: str) -> None:
    """Say how many messages retention deletes soon; nothing if there is none."""
    if count:
        note(
            f"{count:,} {plural(count, 'message')} of {topic} {'is' if count == 1 else 'are'} past "
            "retention already, by their times, and deleted soon: to keep such messages, "
            f"`horolog topic alter {topic} --set retention.ms=-1`"
        )
