"""Answers of one connection on their way to the client, in order and as fast as the client
reads."""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from ...protocol.api.writing import Part
from .deadline import Deadline
from .endpoint import Host
from .file_sending import EncryptedFileSender, FileSender
from .sending import MAX_IN_PARTS, AnswerInParts, AnswerQueue, Made
from .tls_files import TlsPort

JOINED_BYTES: Final = 64 * 1024
"""Largest size of answers that are joined; above it the copy costs more than a second write."""


class Outgoing:
    """Data that a connection has to send."""

    __slots__ = (
        "_deadline",
        "_host",
        "_limit_bytes",
        "_make_sender",
        "_sender",
        "_transport",
        "_unsent_bytes",
        "_work",
        "queue",
        "unread",
        "unsent",
    )

    def __init__(
        self,
        host: Host,
        work: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
        reader_is_late: Callable[[], None],
        tls: TlsPort | None,
    ) -> None:
        """`work` is called when more can be sent. `reader_is_late` is called when the client has
        not read its answers within the deadline."""
        self._host = host
        self._work = work
        self._limit_bytes = host.limits.buffer_bytes
        self._deadline = Deadline(loop, host.limits.deadline_seconds, reader_is_late)
        self._make_sender = FileSender if tls is None else EncryptedFileSender
        self._transport: asyncio.Transport | None = None
        self._unsent_bytes: Callable[[], int] = int
        """Returns the bytes in the transport's buffer; 0 without a transport."""
        self.queue = AnswerQueue(work)
        self._sender: FileSender | None = None
        """Sends answers with parts in files."""
        self.unsent: Collection[Part] = ()
        """Parts that the sender still has to send."""
        self.unread = False
        """Whether the client has too many unread bytes."""

    def begin(self, transport: asyncio.Transport) -> None:
        """Send over this transport."""
        self._transport = transport
        self._unsent_bytes = transport.get_write_buffer_size
        transport.set_write_buffer_limits(high=self._limit_bytes, low=self._limit_bytes // 2)

    def __bool__(self) -> bool:
        """Whether there are answers that the transport does not have yet."""
        return bool(self.queue.made or self.queue.unmade or self.unsent)

    @property
    def is_full(self) -> bool:
        """Whether so much is waiting that no further request may be handled."""
        queue = self.queue
        return (
            self.unread
            or bool(self.unsent)
            or queue.held_bytes >= self._limit_bytes
            or queue.in_parts >= MAX_IN_PARTS
        )

    def held_bytes(self) -> int:
        """Return the memory of answers until the client has them, including finished work whose
        answers are not made yet."""
        queue = self.queue
        held_bytes = queue.held_bytes - queue.in_files_bytes + queue.finished_bytes
        held_bytes += self._unsent_bytes()
        return held_bytes if self._sender is None else held_bytes + self._sender.memory_bytes

    def pause(self) -> None:
        """Stop writing, because the transport's buffer is full."""
        self.unread = True
        self._deadline.start()

    def resume(self) -> None:
        """Continue writing, because the transport accepts more."""
        self.unread = False
        self._deadline.stop()

    def write(self) -> bool:
        """Write the answers whose turn has come until the transport is full. Returns whether the
        transport was empty before."""
        transport, queue = self._transport, self.queue
        assert transport is not None
        had_nothing = False
        while not self.unread:
            if self._sender is not None and self.unsent:
                self._sender.send()
                if self.unsent:
                    break
            if not queue.has_come:
                break
            answers = queue.take(self._limit_bytes)
            if not answers:
                break
            had_nothing = had_nothing or not self._unsent_bytes()
            size = sum(map(len, answers))
            self._host.figures.sent_bytes += size
            if AnswerInParts in map(type, answers):
                for answer in answers:
                    self._add_to_send(answer)
            elif size <= JOINED_BYTES:
                transport.write(b"".join(answers))  # type: ignore[arg-type]
            else:
                # `writelines` would do, but in some releases of Python it ignores flow control.
                for answer in answers:
                    transport.write(answer)  # type: ignore[arg-type]
        return had_nothing

    def send(self, answer: AnswerInParts) -> None:
        """Send an answer that no other precedes, as far as the client accepts it.

        Raises the errors of `FileSender.send`.
        """
        self._add_to_send(answer).send()

    def _add_to_send(self, answer: Made) -> FileSender:
        sender = self._sender
        if sender is None:
            assert self._transport is not None
            sender = self._make_sender(self._transport, self._host.in_thread, self._work)
            self._sender, self.unsent = sender, sender.parts
        if isinstance(answer, AnswerInParts):
            sender.add(answer.parts, answer.memory_bytes)
        else:
            sender.add((answer,), len(answer))
        return sender

    def cancel(self) -> None:
        """Drop everything that the transport does not have yet."""
        self.queue.cancel()
        if self._sender is not None:
            self._sender.close()

    def end(self) -> None:
        """Release everything, because the transport is gone."""
        self._transport, self._unsent_bytes = None, int
        self.cancel()
        self._deadline.stop()
