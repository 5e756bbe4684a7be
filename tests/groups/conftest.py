"""A group and its requests, for tests without a broker."""

import itertools
from collections.abc import Iterator

import pytest

from horolog.server.groups.group import Group, GroupLimits
from horolog.server.groups.member import GroupMember, Joined, Joining, Outcome, Protocol, Refused
from horolog.server.groups.states import State

LIMITS = GroupLimits(members_max=100, bytes_max=1 << 20, initial_delay_ms=0)


def joining(
    *protocols: str,
    session_ms: int = 10_000,
    rebalance_ms: int = 60_000,
    protocol_type: str = "consumer",
    metadata: bytes = b"",
    client_id: str = "c",
    user: str = "",
    host: str = "127.0.0.1",
    instance_id: str | None = None,
) -> Joining:
    """What a member brings; `range` when no protocol is named."""
    return Joining(
        protocol_type=protocol_type,
        protocols=tuple(
            Protocol(name, metadata or name.encode()) for name in protocols or ["range"]
        ),
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        client_id=client_id,
        client_host=host,
        user=user,
        instance_id=instance_id,
    )


class Service:
    """One group, a clock that is moved by hand, and the answers by request."""

    def __init__(self, limits: GroupLimits = LIMITS) -> None:
        self.now = 1000.0
        self.answers: dict[int, Outcome] = {}
        self.lost: list[tuple[str, str]] = []
        self.states: list[State] = []
        self._numbers: Iterator[int] = itertools.count()
        self._ids: Iterator[int] = itertools.count()
        self.group = Group(
            "g", limits, self._new_id, on_change=self._changed, on_lost=self._was_lost
        )

    def join(self, member_id: str = "", brings: Joining | None = None) -> int:
        """Ask to join; returns the number under which `answers` has the answer."""
        number = next(self._numbers)
        self.group.join(self.now, number, member_id, brings or joining())
        self._collect()
        return number

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        instance_id: str | None = None,
    ) -> int:
        number = next(self._numbers)
        shares = assignments or {}
        self.group.sync(self.now, number, member_id, generation, shares, instance_id)
        self._collect()
        return number

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        self.group.heartbeat(self.now, member_id, generation, instance_id)

    def commit(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        self.group.check_commit(self.now, member_id, generation, instance_id)

    def leave(self, member_id: str, instance_id: str | None = None) -> None:
        self.group.leave(self.now, member_id, instance_id)
        self._collect()

    def gone(self, number: int) -> None:
        self.group.gone(self.now, number)
        self._collect()

    def wait(self, seconds: float) -> None:
        """Let time pass, with a look at the group at each of its deadlines."""
        until = self.now + seconds
        while (due := self.group.next_deadline()) <= until:
            self.now = max(due, self.now)
            self.group.time_passed(self.now)
            self._collect()
        self.now = until

    def joined(self, number: int) -> Joined:
        answer = self.answers[number]
        assert isinstance(answer, Joined), answer
        return answer

    def refused(self, number: int) -> int:
        """The code of the error that a request was answered with."""
        answer = self.answers[number]
        assert isinstance(answer, Refused), answer
        return answer.error.code

    def stable(self, members: int = 1, *offers: Joining) -> list[str]:
        """Bring a group to `Stable`; the ids of its members, the leader first."""
        brought = offers or [joining()] * members
        first = self.joined(self.join("", brought[0])).member_id
        others = [self.join("", each) for each in brought[1:]]
        if others:
            self.join(first, brought[0])
        ids = [first, *(self.joined(number).member_id for number in others)]
        for member_id in reversed(ids):
            shares = {each: each.encode() for each in ids} if member_id == first else {}
            self.sync(member_id, self.group.generation, shares)
        assert self.group.state is State.STABLE
        return ids

    def _new_id(self, brings: Joining) -> str:
        return f"{brings.client_id}-{next(self._ids)}"

    def _changed(self, group: Group, before: State) -> None:
        self.states.append(group.state)

    def _was_lost(self, group: Group, member: GroupMember, why: str) -> None:
        self.lost.append((member.member_id, why))

    def _collect(self) -> None:
        for token, outcome in self.group.replies:
            assert isinstance(token, int)
            assert token not in self.answers, "answered twice"
            self.answers[token] = outcome
        self.group.replies.clear()


@pytest.fixture
def service() -> Service:
    """A group without members, that answers the first who joins at once."""
    return Service()
