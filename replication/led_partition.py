"""One partition at its leader: what is committed, and who waits for it."""

from collections import deque
from heapq import heappop, heappush

from .effects import Token
from .partition_log import PartitionLog


class LedPartition:
    """The high watermark is the lowest end in the ISR, and does not pass a set that waits.

    Sets wait for a sync by all of the ISR if their producer waits for it. Of what a new leader
    finds beyond its watermark it is not known which producers waited, so all of it waits.
    """

    __slots__ = (
        "_acks",
        "_asked",
        "_sync_of_broker",
        "_trims",
        "_waiting",
        "election_end",
        "log",
        "sync_to",
        "synced_everywhere",
    )

    def __init__(self, log: PartitionLog, sync: bool) -> None:
        self.log = log
        self.election_end = log.log_end_offset
        self.synced_everywhere = 0
        """Everything below it was synced by all of the ISR at some time of this epoch."""
        self.sync_to = 0
        """Up to where a producer waits for a sync, or has."""
        self._sync_of_broker = sync
        self._waiting: deque[tuple[int, int]] = deque()
        self._acks: list[tuple[int, int, bool, Token]] = []
        """(next offset, number, whether a sync is waited for, token)"""
        self._asked = 0
        self._trims: list[tuple[int, int, Token]] = []
        if self.syncs and self.election_end > log.high_watermark:
            self.wait_for_sync(log.high_watermark, self.election_end)

    @property
    def syncs(self) -> bool:
        """Whether a set that comes now with `acks=all` waits for a sync. Those before it wait for
        what was so when they came."""
        own = self.log.sync_for_acks_all
        return self._sync_of_broker if own is None else own

    @property
    def synced_offset(self) -> int:
        """Up to where this broker has synced it; 0 where no producer waits for a sync."""
        return self.log.synced_offset if self._waiting or self.syncs else 0

    def sync_to_join(self, least: int) -> int:
        """Up to where a follower has to have synced it that joins the ISR with what is below
        `least`."""
        return least if self.syncs else min(least, self.sync_to)

    @property
    def readable(self) -> bool:
        """Whether all that an earlier leader may have shown is below the watermark (KIP-207)."""
        return self.log.high_watermark >= self.election_end

    def wait_for_sync(self, first_offset: int, next_offset: int) -> None:
        """A producer waits until the set between the two is synced."""
        self._waiting.append((first_offset, next_offset))
        self.sync_to = max(self.sync_to, next_offset)

    def await_commit(self, first_offset: int, next_offset: int, token: Token) -> None:
        """`token` is done when the set between the two is committed."""
        sync = self.syncs
        if sync and next_offset > self.synced_everywhere:
            self.wait_for_sync(first_offset, next_offset)
        self._asked += 1
        heappush(self._acks, (next_offset, self._asked, sync, token))

    def await_trim(self, token: Token) -> None:
        """`token` is done when all of the ISR begin where this log begins now."""
        self._asked += 1
        heappush(self._trims, (self.log.log_start_offset, self._asked, token))

    def advance(self, end: int, synced: int) -> bool:
        """All of the ISR has what is below `end`, and synced it below `synced`; whether that
        moves the watermark."""
        if synced > self.synced_everywhere:
            self.synced_everywhere = synced
        waiting = self._waiting
        while waiting and waiting[0][1] <= synced:
            waiting.popleft()
        if waiting and waiting[0][0] < end:
            end = waiting[0][0]
        if end <= self.log.high_watermark:
            return False
        self.log.set_high_watermark(end)
        return True

    def committed(self) -> list[Token]:
        """Who does not wait any more; each is given once."""
        done: list[Token] = []
        if not self._acks:
            return done
        watermark = self.log.high_watermark
        while self._acks and self._acks[0][0] <= watermark:
            next_offset, _, sync, token = self._acks[0]
            if sync and next_offset > self.synced_everywhere:
                break
            heappop(self._acks)
            done.append(token)
        return done

    def trimmed(self, log_start_offset: int) -> list[Token]:
        """Who does not wait any more for a trim: all of the ISR begin at the offset or later."""
        done: list[Token] = []
        while self._trims and self._trims[0][0] <= log_start_offset:
            done.append(heappop(self._trims)[2])
        return done

    @property
    def awaits_trim(self) -> bool:
        return bool(self._trims)

    def abandon(self) -> list[Token]:
        """Who waits for what will not be known here."""
        tokens = [token for *_, token in (*self._acks, *self._trims)]
        self._acks.clear()
        self._trims.clear()
        return tokens
