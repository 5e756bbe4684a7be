"""When followers get a watermark that moved, and nothing else with it."""

from collections.abc import Mapping

from .effects import Connection, Effect, Remind
from .session import Session


class Reminders:
    """One reminder is under way at a time, while a watermark has moved."""

    def __init__(self, sessions: Mapping[Connection, Session], effects: list[Effect]) -> None:
        self._sessions = sessions
        self._effects = effects
        self._under_way = False

    def want(self) -> None:
        """Have watermarks that moved sent to followers, if no other answer goes to them soon."""
        if not self._under_way:
            self._under_way = True
            for session in self._sessions.values():
                session.was_answered = False
            self._effects.append(Remind())

    def due(self) -> list[Session]:
        """A few milliseconds are over: who gets an answer now. Who got one meanwhile gets another
        soon, or after as long again; who does not wait asks for it first."""
        self._under_way = False
        waiting = [it for it in self._sessions.values() if it.waits and it.moved]
        if any(session.was_answered for session in waiting):
            due = [session for session in waiting if not session.was_answered]
            self.want()
            return due
        return waiting
