"""When followers are told of a watermark that moved, and of nothing else."""

from collections.abc import Mapping

from .effects import Connection, Effect, Remind
from .session import Session


class Reminders:
    """One reminder is under way at a time, while there is something to tell."""

    def __init__(self, sessions: Mapping[Connection, Session], effects: list[Effect]) -> None:
        self._sessions = sessions
        self._effects = effects
        self._under_way = False

    def want(self) -> None:
        """Have followers told of watermarks that moved, if nothing else is told them soon."""
        if not self._under_way:
            self._under_way = True
            for session in self._sessions.values():
                session.told = False
            self._effects.append(Remind())

    def due(self) -> list[Session]:
        """A few milliseconds are over: who is to be told now. Who was told something meanwhile is
        so again soon, or after as long again; who does not wait asks for it first."""
        self._under_way = False
        waiting = [it for it in self._sessions.values() if it.waits and it.moved]
        if any(session.told for session in waiting):
            due = [session for session in waiting if not session.told]
            self.want()
            return due
        return waiting
