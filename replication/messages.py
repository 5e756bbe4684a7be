"""What leader and followers say to each other. Everything belongs to one connection and one epoch.

A follower opens a connection, says `Hello`, is welcomed, and from then on sends `Fetch` (answered,
perhaps late) and `Confirm` (not answered). The first `Fetch` names every partition, later ones
those whose position changed. One is under way at a time; while much is to be copied the next one is
sent before an answer is appended, so that there is one answer more on its way.

`Hello` itself confirms nothing: it may have been sent by a process that is no more, whereas who
answers a `Welcome` is alive and has what it says.
"""

from types import MappingProxyType
from typing import Any, NamedTuple

from ..storage.log.epoch_history import EpochEnd, EpochStart
from ..storage.replica.copy_facts import Stored
from .epoch_owners import Owners
from .partition_log import Partition
from .settings import Member


class Hello(NamedTuple):
    """The first message of a follower."""

    member: Member
    epoch: int
    """Of the leader that it means to follow; `NO_EPOCH` where a person said whom to follow."""
    highest_epoch: int
    """That it has ever seen."""
    owners: Owners = MappingProxyType({})
    """Which member led in which epoch, as the follower knows it."""


class Welcome(NamedTuple):
    """The leader's answer to `Hello`."""

    epoch: int
    owners: Owners = MappingProxyType({})
    """Which member led in which epoch; the follower stores it before it appends."""
    damaged: frozenset[Partition] = frozenset()
    """Partitions that are damaged at the leader: a follower keeps all that it has of them."""


class EpochRefusal(NamedTuple):
    """The answer of a broker that does not lead in the epoch of the request."""

    highest_epoch: int
    """That it has ever seen; the one who asked is deposed if it led in an older one."""


class FollowerPosition(NamedTuple):
    """How far a follower is in one partition."""

    partition: Partition
    end: int
    last_epoch: int
    """Of its last message."""
    synced: int
    """Everything below it is on its stable storage."""
    log_start_offset: int
    check: bool = False
    """In a `Fetch`: the messages sent from `end` on were damaged, so the leader checks what it has
    stored there."""


class Fetch(NamedTuple):
    """The request for what follows; confirms the positions that agree with the leader's log."""

    epoch: int
    positions: tuple[FollowerPosition, ...]
    ahead: bool = False
    """Sent before the last answer was appended: the leader goes on behind what it has sent. After
    any other fetch it goes on where the follower says that it is."""


class Confirm(NamedTuple):
    """Positions that changed while a `Fetch` waits at the leader."""

    epoch: int
    positions: tuple[FollowerPosition, ...]
    leaving: bool = False
    """The follower stops: the leader takes it out of the ISR, and does not wait for it again on
    this connection. The follower goes on fetching until it is out."""


class PartitionAnswer(NamedTuple):
    """What a follower gets of one partition."""

    partition: Partition
    diverging: EpochEnd | None
    """Where its log leaves the leader's; it cuts and asks again."""
    stored: Stored | None
    epoch_starts: tuple[EpochStart, ...]
    """Of the range that `stored` covers."""
    log_start_offset: int
    high_watermark: int
    sync_to: int
    """Up to where the leader wants it synced."""
    producers: Any = None
    """The state of producers at the log start, for who begins anew there."""


class Fetched(NamedTuple):
    """The answer to `Fetch`."""

    epoch: int
    parts: tuple[PartitionAnswer, ...]


class HandedOver(NamedTuple):
    """By hand: the leader has stopped, and the follower has everything it had."""

    epoch: int


FromFollower = Hello | Fetch | Confirm
FromLeader = Welcome | EpochRefusal | Fetched | HandedOver
