"""What a broker does with a log of which stored bytes went bad: decisions only.

A damaged leader resigns if another member in sync can lead. A damaged follower leaves the ISR, cuts
the log at the damaged segment's base offset, and fetches from there. The only member in sync never
cuts: what it has may be all that there is.
"""

from collections.abc import Collection

from .partition_log import PartitionLog
from .settings import Member


def can_leave(me: Member, isr: Collection[Member], live: Collection[Member]) -> bool:
    """Whether a member of the ISR may stop counting as in sync: another live one can lead."""
    return any(member != me and member in live for member in isr)


def cut_offset(log: PartitionLog) -> int | None:
    """Where a follower that is out of the ISR cuts a log before it fetches; `None` without damage.

    What is in front of the damage in its segment goes too: a file that went bad in one place is
    copied whole.
    """
    base_offset = log.damaged_base
    return None if base_offset is None else max(base_offset, log.log_start_offset)
