"""One partition at its leader: what is committed, and which requests wait for the commit."""

from collections import deque
from heapq import heappop, heappush

from .effects import Token
from .partition_log import PartitionLog


class LedPartition:
    """A led partition. Its high watermark is the lowest log end in the ISR, and stops below a set
    that waits for a sync.

    A set waits until all of the ISR have synced it, if its producer waits for that. Of the messages
    that a new leader finds above its watermark, it does not know which ones had a waiting producer,
    so all of them wait.
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
        """Offset below which all of the ISR have synced everything at some time in this epoch."""
        self.sync_to = 0
        """Offset up to which a producer waits for a sync, or did."""
        self._sync_of_broker = sync
        self._waiting: deque[tuple[int, int]] = deque()
        self._acks: list[tuple[int, int, bool, Token]] = []
        """(next offset, sequence number, whether the producer waits for a sync, token)"""
        self._asked = 0
        self._trims: list[tuple[int, int, Token]] = []
        if self.syncs and self.election_end > log.high_watermark:
            self.wait_for_sync(log.high_watermark, self.election_end)

    @property
    def syncs(self) -> bool:
        """Whether a set that comes now with `acks=all` waits for a sync. Earlier sets keep the rule
        of their time."""
        own = self.log.sync_for_acks_all
        return self._sync_of_broker if own is None else own

    @property
    def synced_offset(self) -> int:
        """Offset up to which this broker has synced the log; 0 where no producer waits for a
        sync."""
        return self.log.synced_offset if self._waiting or self.syncs else 0

    def sync_to_join(self, least: int) -> int:
        """Return the offset up to which a follower must have synced to join the ISR, given that it
        has to have everything below `least`."""
        return least if self.syncs else min(least, self.sync_to)

    @property
    def readable(self) -> bool:
        """Whether everything that an earlier leader may have served is below the watermark
        (KIP-207)."""
        return self.log.high_watermark >= self.election_end

    def wait_for_sync(self, first_offset: int, next_offset: int) -> None:
        """Hold the watermark below a set until it is synced, because its producer waits for
        that."""
        self._waiting.append((first_offset, next_offset))
        self.sync_to = max(self.sync_to, next_offset)

    def await_commit(self, first_offset: int, next_offset: int, token: Token) -> None:
        """Complete `token` when the set is committed."""
        sync = self.syncs
        if sync and next_offset > self.synced_everywhere:
            self.wait_for_sync(first_offset, next_offset)
        self._asked += 1
        heappush(self._acks, (next_offset, self._asked, sync, token))

    def await_trim(self, token: Token) -> None:
        """Complete `token` when all of the ISR have raised their log start to this log's current
        one."""
        self._asked += 1
        heappush(self._trims, (self.log.log_start_offset, self._asked, token))

    def advance(self, end: int, synced: int) -> bool:
        """Advance the watermark: all of the ISR have what is below `end`, and have synced it below
        `synced`. Returns whether the watermark moved."""
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
        """Return the tokens whose sets are committed. Each token is returned once."""
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
        """Return the tokens whose trim is complete: all of the ISR start at `log_start_offset` or
        later."""
        done: list[Token] = []
        while self._trims and self._trims[0][0] <= log_start_offset:
            done.append(heappop(self._trims)[2])
        return done

    @property
    def awaits_trim(self) -> bool:
        return bool(self._trims)

    def abandon(self) -> list[Token]:
        """Return the tokens of all waiting requests, whose results this broker will not learn."""
        tokens = [token for *_, token in (*self._acks, *self._trims)]
        self._acks.clear()
        self._trims.clear()
        return tokens
