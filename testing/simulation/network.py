"""Connections between brokers. Messages of one connection keep their order; connections are
independent."""

from collections import deque
from random import Random
from typing import Any, Final

END: Final = None
"""In place of a message: the other side has closed."""


class SimulatedWire:
    """One connection. Messages in flight stay deliverable after their sender is gone."""

    __slots__ = (
        "follower_id",
        "follower_run",
        "leader_id",
        "leader_run",
        "to_follower",
        "to_leader",
    )

    def __init__(
        self, follower_id: int, follower_run: int, leader_id: int, leader_run: int
    ) -> None:
        self.follower_id = follower_id
        self.follower_run = follower_run
        self.leader_id = leader_id
        self.leader_run = leader_run
        self.to_leader: deque[Any] = deque()
        self.to_follower: deque[Any] = deque()


class Network:
    """All connections, and the directions in which machines cannot reach each other."""

    def __init__(self, random: Random) -> None:
        self.wires: list[SimulatedWire] = []
        self.cut: set[tuple[int, int]] = set()
        """Pairs (from, to) between which nothing arrives. 0 is etcd."""
        self._random = random

    def reaches(self, sender: int, receiver: int) -> bool:
        return (sender, receiver) not in self.cut

    def left(self, wire: SimulatedWire, by_follower: bool, silent: bool = False) -> None:
        """Close a connection on one side. `silent`: the other side does not learn of it."""
        mine, other = (
            (wire.to_follower, wire.to_leader)
            if by_follower
            else (wire.to_leader, wire.to_follower)
        )
        mine.clear()
        if by_follower:
            wire.follower_run = -1
        else:
            wire.leader_run = -1
        if self._random.random() < 0.5:
            other.clear()
        if not silent:
            other.append(END)
        if (wire.follower_run == -1 == wire.leader_run or not other) and wire in self.wires:
            self.wires.remove(wire)

    def deliverable(self) -> list[tuple[SimulatedWire, bool]]:
        """Return the pairs (wire, whether to its leader) on which a message can arrive now."""
        cut = self.cut
        found = []
        for wire in self.wires:
            if wire.to_leader and (wire.follower_id, wire.leader_id) not in cut:
                found.append((wire, True))
            if wire.to_follower and (wire.leader_id, wire.follower_id) not in cut:
                found.append((wire, False))
        return found
