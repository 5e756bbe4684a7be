"""Whatever members do and in whatever order: what holds for a group all the time."""

from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from horolog.protocol.errors import HorologError
from horolog.server.groups.group import GroupLimits
from horolog.server.groups.member import Joined, Refused, Synced
from horolog.server.groups.states import State

from .conftest import Service, joining

SESSION_SECONDS = 10
REBALANCE_SECONDS = 20
PROTOCOLS = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",)])


class Clients(RuleBasedStateMachine):
    """Members as clients see them: ids and generations that they were told, and requests."""

    numbers = Bundle("numbers")

    @initialize(
        delay_ms=st.sampled_from([0, 3000]),
        members_max=st.sampled_from([3, 100]),
        members=st.integers(0, 4),
    )
    def begin(self, delay_ms: int, members_max: int, members: int) -> None:
        limits = GroupLimits(members_max=members_max, bytes_max=1 << 20, initial_delay_ms=delay_ms)
        self.service = Service(limits)
        self.joins: set[int] = set()
        self.syncs: dict[int, tuple[str, int]] = {}
        self.gone: set[int] = set()
        self.shares: dict[int, dict[str, bytes]] = {}
        self.seen: set[int] = set()
        self.leaders: dict[int, str] = {}
        self.ids: list[str] = []
        self.before: dict[str, str] = {}
        """Of a static member, whose place it took."""
        self.kept: set[tuple[str, int]] = set()
        """Members that took over shares, in which generations."""
        self.generation = 0
        for _ in range(members):
            self._join("", ("range", "sticky"))
            self.wait(delay_ms / 1000)
            self.all_join_but_one(members)

    @rule(
        target=numbers,
        protocols=PROTOCOLS,
        instance_id=st.sampled_from([None, None, "a", "b"]),
        metadata=st.sampled_from([b"", b"other"]),
    )
    def come(self, protocols: tuple[str, ...], instance_id: str | None, metadata: bytes) -> object:
        return self._join("", protocols, metadata, instance_id)

    @precondition(lambda self: self.ids)
    @rule(
        target=numbers,
        pick=st.integers(0, 9),
        protocols=PROTOCOLS,
        metadata=st.sampled_from([b"", b"other"]),
    )
    def come_again(self, pick: int, protocols: tuple[str, ...], metadata: bytes) -> object:
        return self._join(self.ids[pick % len(self.ids)], protocols, metadata)

    def _join(
        self,
        member_id: str,
        protocols: tuple[str, ...],
        metadata: bytes = b"",
        instance_id: str | None = None,
    ) -> object:
        brings = joining(
            *protocols,
            session_ms=1000 * SESSION_SECONDS,
            rebalance_ms=1000 * REBALANCE_SECONDS,
            metadata=metadata,
            instance_id=instance_id,
        )
        members = self.service.group.members
        earlier = members.of_instance(instance_id) if instance_id else None
        before, generation = self._snapshot(), self.service.group.generation
        try:
            number = self.service.join(member_id, brings)
        except HorologError:
            assert self._snapshot() == before, "a refusal changes nothing"
            return multiple()
        self.joins.add(number)
        if earlier is not None:
            assert instance_id is not None
            later = members.of_instance(instance_id)
            assert later is not None
            self.before[later.member_id] = earlier.member_id
            if number in self.service.answers and self.service.group.generation == generation:
                self.kept.add((later.member_id, generation))
        self._look()
        return number

    def _first(self, member_id: str) -> str:
        """The first of the members that a static one took the place of."""
        while member_id in self.before:
            member_id = self.before[member_id]
        return member_id

    def _share_of(self, member_id: str, generation: int) -> str:
        """Who was given the share that a member has."""
        while (member_id, generation) in self.kept:
            member_id = self.before[member_id]
        return member_id

    @precondition(lambda self: self.ids)
    @rule(late=st.integers(0, 3))
    def all_join_but_one(self, late: int) -> None:
        """Far into the states that members who behave reach."""
        for place, member_id in enumerate(list(self.service.group.members)):
            if place != late and member_id in self.ids:
                self._join(member_id, ("range", "sticky"))

    @precondition(lambda self: self.ids)
    @rule(late=st.integers(0, 3))
    def all_sync_but_one(self, late: int) -> None:
        for place, member_id in enumerate(reversed(list(self.service.group.members))):
            if place != late and member_id in self.ids:
                self._sync(member_id, self.service.group.generation)

    @precondition(lambda self: self.ids)
    @rule(pick=st.integers(0, 9), back=st.sampled_from([0, 0, 0, 1]))
    def sync(self, pick: int, back: int) -> None:
        self._sync(self.ids[pick % len(self.ids)], self.service.group.generation - back)

    def _sync(self, member_id: str, generation: int) -> None:
        shares = {}
        if member_id == self.service.group.leader:
            shares = {each: f"{generation} {each}".encode() for each in self.service.group.members}
        before = self._snapshot()
        try:
            number = self.service.sync(member_id, generation, shares)
        except HorologError:
            assert self._snapshot() == before
        else:
            self.syncs[number] = member_id, generation
            self._look()

    @precondition(lambda self: self.ids)
    @rule(pick=st.integers(0, 9))
    def beat(self, pick: int) -> None:
        before = self._snapshot()
        with suppress(HorologError):
            self.service.heartbeat(self.ids[pick % len(self.ids)], self.service.group.generation)
        assert self._snapshot() == before, "heartbeats change no state"

    @precondition(lambda self: self.ids)
    @rule(pick=st.integers(0, 9))
    def leave(self, pick: int) -> None:
        try:
            self.service.leave(self.ids[pick % len(self.ids)])
        except HorologError:
            return
        self._look()

    @rule(number=consumes(numbers))
    def disconnect(self, number: int) -> None:
        if number not in self.service.answers:
            self.gone.add(number)
            self.service.gone(number)
            self._look()

    @rule(seconds=st.sampled_from([0.5, 0.5, 3, 3, 9.9, 10, 30]))
    def wait(self, seconds: float) -> None:
        self.service.wait(seconds)
        self._look()

    def _snapshot(self) -> object:
        group = self.service.group
        return group.state, group.generation, list(group.members), group.size_bytes, group.leader

    def _look(self) -> None:
        """Check the answers that came, as the clients that get them would."""
        for number in self.service.answers.keys() - self.seen:
            self.seen.add(number)
            match self.service.answers[number]:
                case Joined() as joined:
                    assert number in self.joins
                    self._check_joined(joined)
                case Synced(assignment):
                    member_id, generation = self.syncs[number]
                    owner = self._share_of(member_id, generation)
                    assert assignment == f"{generation} {owner}".encode(), "its own share"
                case Refused():
                    pass

    def _check_joined(self, joined: Joined) -> None:
        leader = self.leaders.setdefault(joined.generation, joined.leader)
        assert self._first(joined.leader) == self._first(leader), "one leader in a generation"
        if joined.member_id == joined.leader:
            ids = [each for each, _, _ in joined.members]
            assert joined.member_id in ids
            assert len(set(ids)) == len(ids)
        else:
            assert not joined.members
        if joined.member_id not in self.ids:
            self.ids.append(joined.member_id)

    @invariant()
    def holds(self) -> None:
        group = self.service.group
        members = group.members
        assert group.generation >= self.generation, "generations only rise"
        self.generation = group.generation
        assert (group.state is State.EMPTY) == (not len(members))
        assert (group.leader or "") in members or not len(members)
        assert members.size_bytes == sum(each.size_bytes for each in members.values())
        if len(members):
            assert members.common_protocols() == set.intersection(
                *({each.name for each in member.joining.protocols} for member in members.values())
            )
            assert members.common_protocols()
        assert group.next_deadline() > self.service.now or not len(members)

    @invariant()
    def nobody_is_forgotten(self) -> None:
        """Each request is answered, or a member waits for it; each lost member has its reason."""
        group = self.service.group
        waiting = {
            token
            for member in group.members.values()
            for token in (member.join_token, member.sync_token)
            if token is not None
        }
        unanswered = (self.joins | self.syncs.keys()) - self.service.answers.keys()
        assert waiting <= unanswered
        assert unanswered - waiting <= self.gone
        lost = {member_id for member_id, _ in self.service.lost}
        assert {each for each in self.ids if each not in group.members} <= lost
        assert lost.isdisjoint(group.members)
        for member in group.members.values():
            assert member.join_token is None or group.state is State.PREPARING
            assert member.sync_token is None or group.state is State.COMPLETING

    def teardown(self) -> None:
        """However it stands: without a sign of life from anybody everything ends."""
        if not hasattr(self, "service"):
            return
        self.service.wait(10 * (SESSION_SECONDS + REBALANCE_SECONDS))
        self._look()
        assert self.service.group.state is State.EMPTY
        assert self.service.answers.keys() | self.gone >= self.joins | self.syncs.keys()
        assert self.service.group.size_bytes == 0


TestClients = Clients.TestCase
TestClients.settings = settings(max_examples=30, stateful_step_count=40)
