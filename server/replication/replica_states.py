"""The state of each cluster member, since when it has been so, and how far the member is behind."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from ...protocol.api.cluster.describe_replicas import NOT_KNOWN, ReplicaMember
from ...protocol.errors import HorologError
from ...replication.leader import Leader
from ...replication.partition_log import Partition
from ...replication.session import Session
from ...storage.log.epoch_history import NO_EPOCH
from ...storage.read import reader
from .followers import Followers
from .member import ClusterMember
from .replica_fetcher import ReplicaFetcher

LEADER: Final = "leader"
IN_SYNC: Final = "in-sync"
CATCHING_UP: Final = "catching-up"
DOWN: Final = "down"

LOOKED_AT: Final = 100
"""For how many partitions the time of the first message that a follower lacks is looked up."""


class ReplicaStates:
    """The states of the cluster's members, as far as this broker knows; updated regularly."""

    def __init__(
        self, member: ClusterMember, followers: Followers, fetcher: ReplicaFetcher
    ) -> None:
        self._member = member
        self._followers = followers
        self._fetcher = fetcher
        self._since: dict[int, tuple[str, int]] = {}
        """By broker id, the state, and the time at which it was first seen, in ms."""
        self._sessions: dict[int, Session] = {}
        """By broker id, the last session of each follower of this leader, kept when the follower is
        gone."""
        self._leader: Leader | None = None

    def record_changes(self) -> None:
        """Record and report changes of the members' states."""
        member = self._member
        self._record_sessions(member.node.leader)
        states = self.states()
        now_ms = member.clock.now_ms()
        for broker_id in self._since.keys() - states.keys():
            del self._since[broker_id]
        for broker_id, state in states.items():
            before = self._since.get(broker_id)
            if before is not None and before[0] == state:
                continue
            self._since[broker_id] = state, now_ms
            if member.leads and broker_id != member.broker_id:
                change = {} if before is None else {"before": before[0]}
                member.observe("replica_state", broker=broker_id, state=state, **change)

    def _record_sessions(self, leader: Leader | None) -> None:
        if leader is not self._leader:
            self._leader = leader
            self._sessions.clear()
        if leader is not None:
            for session in leader.sessions.values():
                self._sessions[session.member.broker_id] = session

    # Who leads.

    @property
    def waits_for(self) -> str:
        """Why this broker neither leads nor follows; empty if it does."""
        member = self._member
        return "" if member.node.leader is not None or self._follows else member.election.waits_for

    @property
    def _follows(self) -> bool:
        """Whether this broker follows a leader whose address it knows."""
        return self._member.node.follower is not None and bool(self._fetcher.address)

    @property
    def leader_hint(self) -> str:
        """Text about who leads, for a client that asked the wrong broker."""
        broker_id = self._member.broker_id
        if self._follows:
            return f"broker {broker_id} follows the leader at {self._fetcher.address}"
        return f"broker {broker_id} does not lead: {self.waits_for}"

    # In which state.

    def states(self) -> dict[int, str]:
        """Return the state of each known member, by broker id."""
        member = self._member
        leader = member.node.leader
        if leader is not None:
            in_sync = {one.broker_id for one in leader.isr.members}
            others = member.known.keys() | member.absent.keys() | in_sync
            others.discard(member.broker_id)
            states = {one: self._follower_state(one, one in in_sync) for one in others}
            return states | {member.broker_id: LEADER}
        states = {member.broker_id: self._my_state()}
        follower = member.node.follower
        # A broker that has not said its epoch may not be the leader, or not any more.
        if follower is not None and follower.epoch != NO_EPOCH and self._fetcher.leader_id:
            states[self._fetcher.leader_id] = DOWN if self.leader_is_silent else LEADER
        return states

    def _follower_state(self, broker_id: int, in_sync: bool) -> str:
        member = self._member
        channel = self._followers.channel_of(broker_id)
        if channel is None:
            return DOWN
        if in_sync:
            return IN_SYNC
        silent_s = member.now_s - channel.last_seen_s
        is_silent = silent_s * 1000 > member.settings.replica_lag_time_max_ms
        return DOWN if is_silent else CATCHING_UP

    def _my_state(self) -> str:
        member, node = self._member, self._member.node
        known: Collection[int] | None = member.election.in_sync
        if known is None:
            known = () if node.follower is None else self._fetcher.in_sync
        is_in_sync = member.broker_id in known and not node.identity.in_doubt
        return IN_SYNC if is_in_sync else CATCHING_UP

    @property
    def leader_is_silent(self) -> bool:
        """Whether the leader has not answered for longer than `replica.lag.time.max.ms`."""
        member = self._member
        silent_s = member.now_s - self._fetcher.answered_s
        return silent_s * 1000 > member.settings.replica_lag_time_max_ms

    def rules_may_be_old(self) -> str:
        """Return why the access rules known here may be out of date, so that clients must not be
        served; empty if they are the leader's, or without authorization."""
        member = self._member
        if member.settings.authorization != "on" or member.node.leader is not None:
            return ""
        if member.node.follower is not None and not self.leader_is_silent:
            return ""
        return (
            f"{self.silence}, and replica.lag.time.max.ms is "
            f"{member.settings.replica_lag_time_max_ms}: the access rules that broker "
            f"{member.broker_id} knows may be old; ask the leader"
        )

    def leads_not(self) -> str:
        """Return why this broker does not lead, and who does; empty for the leader."""
        member = self._member
        if member.leads:
            return ""
        if member.node.follower is not None and self.leader_is_silent:
            return self.silence
        known = member.node.follower is not None and self._fetcher.leader_id
        who = f"broker {self._fetcher.leader_id} leads: " if known else ""
        return f"{who}{self.leader_hint}"

    def not_ready(self) -> str:
        """Return why clients should use another broker; empty for a leader and for an in-sync
        follower."""
        member = self._member
        node, fetcher = member.node, self._fetcher
        if member.leads:
            return ""
        if node.follower is None:
            return self.leader_hint
        for partition in member.stored.hurt():
            return f"{partition[0]}-{partition[1]} is damaged here, and has to be copied anew"
        if node.identity.in_doubt:
            hint = self.leader_hint
            return (
                f"in doubt: {hint}, and may lack what it had confirmed until it has all"
                f"{self._obstacles}"
            )
        if self.leader_is_silent:
            return self.silence
        if member.broker_id not in fetcher.in_sync:
            lacks = "has heard nothing of it since it started"
            if fetcher.behind_messages is not None:
                lacks = f"lacks {fetcher.behind_messages:,} messages"
            return f"catching up: {self.leader_hint}, and {lacks}{self._obstacles}"
        return ""

    @property
    def _obstacles(self) -> str:
        """Text, beginning with a semicolon, about what keeps this broker from copying everything;
        empty if that is not known."""
        member = self._member
        found = "".join(f"; {text}" for text in list(member.stored.failing.values())[:1])
        unreadable = self._fetcher.unreadable
        return f"{found}; the leader cannot read {unreadable}" if unreadable else found

    @property
    def silence(self) -> str:
        """Text about how long the leader has not answered."""
        fetcher = self._fetcher
        silent_s = self._member.now_s - fetcher.answered_s
        return f"the leader at {fetcher.address} has said nothing for {silent_s:.1f} s"

    # How far behind.

    def member(self, known: ReplicaMember) -> ReplicaMember:
        """Add to a member its state, since when, and, at the leader, how far it is behind."""
        self.record_changes()
        state, since_ms = self._since.get(known.broker_id, (DOWN, NOT_KNOWN))
        known.state, known.since_ms = state, since_ms
        leader = self._leader
        session = self._sessions.get(known.broker_id)
        if state == LEADER:
            known.lag_messages = known.lag_ms = 0
        elif leader is not None and session is not None:
            behind = _behind(leader, session)
            known.lag_messages = sum(end - first for first, end in behind.values())
            known.lag_ms = self._lag_ms(behind) if behind else 0
        return known

    def _lag_ms(self, behind: Mapping[Partition, tuple[int, int]]) -> int:
        """Return how long ago, in ms, the oldest message that a follower lacks was appended, by the
        first `LOOKED_AT` partitions."""
        member = self._member
        oldest = None
        for partition in sorted(behind)[:LOOKED_AT]:
            stored = member.stored.logs.get(partition)
            if stored is None:
                continue
            offset = max(behind[partition][0], stored.log.log_start_offset)
            with suppress(HorologError, OSError):
                ms = reader.append_time_ms(stored.log, offset)
                if ms >= 0 and (oldest is None or ms < oldest):
                    oldest = ms
        return NOT_KNOWN if oldest is None else max(member.clock.now_ms() - oldest, 0)


def _behind(leader: Leader, session: Session) -> dict[Partition, tuple[int, int]]:
    """Return, for each partition in which a follower lacks messages, the first offset that it lacks
    and the leader's log end."""
    is_there = leader.sessions.get(session.connection) is session
    asked: Any = session.behind if is_there else leader.partitions
    found = {}
    for partition in asked:
        log = leader.partitions[partition].log
        first = max(session.ends.get(partition, log.log_start_offset), log.log_start_offset)
        if first < log.log_end_offset:
            found[partition] = first, log.log_end_offset
    return found
