"""Decides when to send a follower a high watermark that moved without new messages."""

from collections.abc import Mapping

from .effects import Connection, Effect, Remind
from .session import Session


class Reminders:
    """A timer for watermarks that moved. At most one reminder is pending."""

    def __init__(self, sessions: Mapping[Connection, Session], effects: list[Effect]) -> None:
        self._sessions = sessions
        self._effects = effects
        self._under_way = False

    def want(self) -> None:
        """Start the timer, unless it runs, for watermarks that no other answer carries to the
        followers soon."""
        if not self._under_way:
            self._under_way = True
            for session in self._sessions.values():
                session.was_answered = False
            self._effects.append(Remind())

    def due(self) -> list[Session]:
        """Return the sessions to answer now that the timer (a few milliseconds) has run out.

        A follower that got another answer since the timer started will soon get one more, or is
        answered when the restarted timer runs out. A follower without a pending fetch cannot be
        answered.
        """
        self._under_way = False
        waiting = [it for it in self._sessions.values() if it.waits and it.moved]
        if any(session.was_answered for session in waiting):
            due = [session for session in waiting if not session.was_answered]
            self.want()
            return due
        return waiting
