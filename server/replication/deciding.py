"""Who decides who leads: people, or etcd."""

from typing import Protocol

from ...replication.effects import Effect
from ...replication.messages import Hello
from ...replication.node import Node


class Decider(Protocol):
    """Makes a broker's node, and carries out the effects that only this kind of node has."""

    @property
    def node(self) -> Node: ...

    @property
    def waits_for(self) -> str:
        """Why this broker neither leads nor follows."""
        ...

    @property
    def contested_epoch(self) -> int:
        """The epoch that two brokers led in; `NO_EPOCH` without one."""
        ...

    @property
    def promise(self) -> str:
        """Why messages may be lost if this broker is made the leader; empty if none are."""
        ...

    @property
    def in_sync(self) -> list[int] | None:
        """Who is in sync, where a broker that does not lead knows it."""
        ...

    async def prepare(self) -> None:
        """What is to be known before the start. Raises `InvalidConfig`."""
        ...

    def start(self) -> None: ...

    async def resign(self) -> None:
        """Lead no more, because the broker stops."""
        ...

    async def stop(self) -> None:
        """Let go what is held, when nothing is led or followed any more."""
        ...

    def tick(self, now_s: float) -> None:
        """Give the node the time."""
        ...

    def carry_out(self, effect: Effect) -> None:
        """Carry out an effect that only this kind of node has."""
        ...

    def knows(self, hello: Hello) -> bool:
        """Whether a broker that says this is a member, with no epoch that cannot be."""
        ...

    async def know(self, hello: Hello) -> None:
        """Wait until `knows`, for as long as it takes a member to be known that has just come."""
        ...

    def promote(self, now_s: float, *, accept_loss: bool) -> str | None:
        """Let this broker lead, now or soon, without the old leader's answer; or why not."""
        ...
