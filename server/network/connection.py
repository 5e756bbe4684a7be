"""Server side of one client connection: receives bytes, handles frames, sends answers in order.

Everything happens in the transport's callbacks. The resources that a client can hold are bounded:
unanswered requests, bytes of unread answers, and the time for an incomplete request or an unread
answer.

    reading    frames are handled as they arrive
    stuck      no byte is read and no frame is handled, because too much is unanswered, unread or in
               progress, or there is no memory for the next request, or a request must be
               answered before the next one, or the client is throttled
    finishing  no byte is read any more; the connection closes after the last answer
    broken     as finishing, after invalid input, which is the reason for closing
"""

import asyncio
import select
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from time import thread_time
from typing import Protocol, cast

from ...config.address import join_address
from ...protocol.api.framing import ForeignProtocol, Frame, FrameReader, ProtocolError
from ...protocol.limits import REQUESTS_IN_A_TURN, SLAB_BYTES, SPARE_BYTES
from ..metrics.figures import count
from ..outcomes import CloseConnection
from ..requests import PendingAnswer
from .deadline import Deadline, IdleLimit
from .endpoint import Answerer, Caller, Endpoint, Frames, Host, Source
from .entrance import UNAUTHENTICATED_FRAME_BYTES, Entrance
from .file_sending import FileChanged
from .held_memory import FREE_BYTES
from .outgoing import Outgoing
from .ready_connections import REQUEST_BYTES, ReadyConnections
from .sending import MOST_LARGE, Answer

VIEWED_BYTES = 32 * 1024
"""From this many bytes on, requests are handled in the receive buffer. Copying fewer bytes costs
nothing."""

PASS_SECONDS = 0.005
"""Processor time per pass of the event loop for one connection's requests. The remaining requests
wait for the next pass."""

FRAME_BYTES = 100
"""Memory of a waiting frame in addition to its bytes."""

CROWDED_CAUSE = (
    "all places of connections without a login were taken (connections.unauthenticated.max), most "
    "of them by this address, and another address asked for one"
)

RESET_LOOK_SECONDS = 1.0
"""Seconds between two checks whether the client is gone, while the connection is not read from and
its requests are being worked on."""

NO_TLS_HERE = bytes.fromhex("15 0303 0002 02 46")
"""TLS alert (fatal, protocol_version). TLS clients show it, and stop waiting."""


class Descriptor(Protocol):
    """A socket with a file descriptor."""

    def fileno(self) -> int: ...


def was_reset(connected: Descriptor) -> bool:
    """Whether the peer has closed both directions or reset the connection. A peer that only stopped
    sending, and waits for answers, has not. False where the system cannot tell."""
    make = getattr(select, "poll", None)
    if make is None or connected.fileno() < 0:
        return False
    poll = make()
    poll.register(connected.fileno(), 0)
    gone = select.POLLERR | select.POLLHUP
    return any(flags & gone for _, flags in poll.poll(0))


class Connection(asyncio.BufferedProtocol):
    """Server side of one connection to `endpoint`."""

    def __init__(
        self,
        host: Host,
        endpoint: Endpoint,
        ready: ReadyConnections,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`ready` lets the connection continue when it has requests."""
        self._host = host
        self._endpoint = endpoint
        self._ready_connections = ready
        self._loop = loop
        self._limits = host.limits
        self._reader = FrameReader(
            host.limits.max_frame_bytes,
            limit_name="max.frame.bytes",
            protocol=endpoint.protocol,
            slab=host.slab,
            spares=host.spares,
        )
        self._answerer = endpoint.answerer
        self._entrance: Entrance | None = None
        """The login that the connection must pass; None where no login is needed."""
        self._outgoing = Outgoing(host, self._work, loop, self._reader_is_late, endpoint.tls)
        self._answers = self._outgoing.queue
        self._frames: Frames = deque()
        self._large: bytearray | None = None
        """Large frame whose memory is reused once the frame leaves `_frames`."""
        self._transport: asyncio.Transport | None = None
        self._caller = Caller(("", 0), "")
        self._reading = True
        self._room_bytes = 0
        """Size of the receive buffer that was handed out last."""
        self._finishing = False
        self._broken: tuple[str, str] | None = None
        self._muted: asyncio.TimerHandle | None = None
        self._waits_for_room = False
        """Whether the first frame must wait until other work is done."""
        self._noted_work_bytes = 0
        self._reset_look: asyncio.TimerHandle | None = None
        self._working = False
        seconds = host.limits.deadline_seconds
        self._frame_deadline = Deadline(loop, seconds, self._request_is_late)
        self._idle_limit = IdleLimit(
            loop, host.limits.idle_seconds, self._idle_since, self._was_idle
        )
        self._close_deadline: asyncio.TimerHandle | None = None
        self.end_handshake: Callable[[], None] | None = None
        """Closes the connection during the TLS handshake, when there is no transport yet."""
        self.peer = ""
        self.held_since = loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's classes; they have the same methods.
        transport = self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        local = transport.get_extra_info("sockname")[:2]
        host = peer[0] if peer else ""
        self.peer = join_address(*peer[:2]) if peer else "unknown"
        if self._endpoint.makes_wait:
            self._entrance = Entrance(self, self._endpoint, self._limits, self._loop, self._host)
            session = self._entrance.meet(transport, host)
        else:
            session = None
        self._caller = self._endpoint.caller(local, host, session, self.mute, self._admit)
        self._outgoing.begin(transport)
        self._host.figures.connections_opened += 1
        self._idle_limit.start()
        if self._finishing:
            self._close()

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._reader.get_buffer(sizehint)
        self._room_bytes = len(buffer)
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        if nbytes == self._room_bytes:
            self._give_way()
        self._host.figures.received_bytes += nbytes
        reader = self._reader
        held_nothing = not reader.unfinished
        views = nbytes >= VIEWED_BYTES and not self._frames and self._answers_at_once
        try:
            frames = reader.received_views(nbytes) if views else reader.received(nbytes)
        except MemoryError:
            reader.let_go()
            self._drop("memory", "there was no memory for the request")
            return
        if held_nothing or frames:
            self.held_since = self._loop.time()
        if reader.fault is not None:
            self._broken = "protocol", reader.fault.cause
            self._tell_tls(reader.fault)
        if not frames:
            self._wait_for_rest()
            return
        if not held_nothing:
            self._frame_deadline.stop()
            self._note_large(frames[0])
        self._frames.extend(frames)
        if views:
            self._answer_all()
            if self._frames:
                self._own_frames()
        elif self._answerer.waits_for_others(self._frames[0]):
            self._ready_connections.add(self, sum(map(len, frames)) + REQUEST_BYTES * len(frames))
        else:
            self.go_on()
        self._give_back()

    def _wait_for_rest(self) -> None:
        """Wait for the rest of a request that is incomplete, perhaps for ever."""
        if self._reader.fault is not None:
            self._work()
            return
        # Further bytes of an incomplete request do not extend its deadline.
        self._frame_deadline.start()
        self._host.held_memory.note(self)

    def _give_way(self) -> None:
        """Continue reading in the next pass of the event loop. Otherwise libuv reads up to 32 times
        per pass from a client that fills the buffer, and all other clients wait."""
        if self._transport is not None:
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._reading and self._transport is not None:
            self._transport.resume_reading()

    def _note_large(self, frame: Frame) -> None:
        if not isinstance(frame, bytes | memoryview) and SLAB_BYTES < len(frame) <= SPARE_BYTES:
            self._large = frame

    def _give_back(self) -> None:
        """Return the buffer of a large frame for reuse, once the frame was handled. The reader does
        not reuse it while a pending answer has a view of it."""
        if self._large is not None and not self._frames:
            self._reader.give_back(self._large)
            self._large = None

    def let_in(self) -> None:
        """Answer all requests: the client has logged in, or needs no login."""
        self._answerer = self._endpoint.answerer
        self._reader.allow(self._limits.max_frame_bytes, "max.frame.bytes")
        self._host.let_in(self)

    def lock(self, gate: Answerer) -> None:
        """Answer only what `gate` answers, and accept only small requests."""
        self._answerer = gate
        self._reader.allow(UNAUTHENTICATED_FRAME_BYTES, "before a login")

    def login_is_late(self) -> None:
        seconds = self._limits.login_seconds
        self._drop("login", f"no login was done in {seconds:g} s (authentication.deadline.ms)")

    @property
    def _is_inside(self) -> bool:
        return self._answerer is self._endpoint.answerer

    def _tell_tls(self, fault: ProtocolError) -> None:
        """Send a TLS client an alert which says that this port has no TLS."""
        if isinstance(fault, ForeignProtocol) and fault.name == "TLS" and self._transport:
            self._transport.write(NO_TLS_HERE)

    def _own_frames(self) -> None:
        """Copy frames that have to wait, because the receive buffer is reused."""
        try:
            for number, frame in enumerate(self._frames):
                if isinstance(frame, memoryview):
                    self._frames[number] = bytearray(frame)
        except MemoryError:
            self._drop("memory", "there was no memory for the requests that wait")

    @property
    def _answers_at_once(self) -> bool:
        """Whether an incoming request is handled now. Earlier requests may have pending answers,
        but no finished answer may be waiting."""
        answers, outgoing = self._answers, self._outgoing
        return not (
            answers.made
            or (answers.unmade and self._stuck)
            or outgoing.unsent
            or outgoing.unread
            or self._finishing
            or self._broken
            or self._working
            or self._muted
            or self._waits_for_room
            or self._host.held_memory.is_short
            or self._transport is None
            or self._transport.get_write_buffer_size()
            or self._transport.is_closing()
        )

    def eof_received(self) -> bool:
        """The client has stopped sending and is probably gone. Its requests are still answered."""
        self.finish()
        return True

    def pause_writing(self) -> None:
        self._outgoing.pause()

    def resume_writing(self) -> None:
        self._outgoing.resume()
        self._work()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._reader.let_go()
        self._host.held_memory.forget(self)
        self._frames.clear()
        self._large = None
        self._outgoing.end()
        self._frame_deadline.stop()
        self._idle_limit.stop()
        self._caller = Caller(("", 0), "")
        for timer in (self._muted, self._reset_look):
            if timer is not None:
                timer.cancel()
        if self._entrance is not None:
            self._entrance.leave()
        if self._close_deadline is not None:
            self._close_deadline.cancel()
        self._host.closed(self)

    def finish(self) -> None:
        """Answer what was received, read nothing more, then close. Waits for data are ended."""
        self._finishing = True
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        self._work()

    def mute(self, seconds: float) -> None:
        """Handle no requests for this many seconds. Answers are still sent."""
        if self._finishing or self._transport is None:
            return
        until = self._loop.time() + seconds
        if self._muted is None:
            # Reading stops after the current request, not in the middle of it.
            self._loop.call_soon(self._work)
        elif self._muted.when() < until:
            self._muted.cancel()
        else:
            return
        self._muted = self._loop.call_at(until, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self._work()

    def abort(self) -> None:
        """Close at once, even if requests are unanswered or answers unread."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def address(self) -> str:
        """Address of the client."""
        return self._caller.host

    def held_bytes(self) -> int:
        """Return the bytes that the client makes the broker hold: unread answers, waiting requests,
        a large incomplete request."""
        if self._transport is None:
            return 0
        frames = self._frames
        requests = sum(map(len, frames)) + FRAME_BYTES * len(frames) if frames else 0
        if self._reader.unfinished:
            requests += self._reader.held_bytes
        return self._outgoing.held_bytes() + requests

    def give_up(self, total_bytes: int) -> None:
        """Close at once: all clients together hold too much, and this one has for the longest
        time."""
        self._drop(
            "memory",
            f"clients left {total_bytes} bytes of answers unread or of requests unfinished, more "
            "than max.buffered.bytes, and this one for the longest time",
        )
        self.abort()

    def _admit(self, work_bytes: int, *, begun: bool = False) -> bool:
        """As `Caller.admit`. A request that is not admitted is tried again when that may have
        changed, unless it is begun."""
        answers = self._answers
        if begun:
            self._note_work()
            return self._host.held_memory.has_room(work_bytes)
        if answers.work_bytes + answers.finished_bytes + work_bytes <= FREE_BYTES:
            return True
        if work_bytes <= FREE_BYTES or answers.large < MOST_LARGE:
            self._note_work()
            if self._host.held_memory.take_room(self, work_bytes):
                return True
        self._waits_for_room = True
        return False

    def room_came(self) -> None:
        """Continue with the request that waited for memory."""
        self._work()

    def give_way(self, address: str) -> None:
        """Close at once: this connection has no login, and `address` has more such connections than
        any other."""
        if self._transport is not None:
            self._drop("crowded", CROWDED_CAUSE)
            self.abort()
            return
        self.peer = address
        self._count_dropped("crowded", CROWDED_CAUSE)
        self._finishing = True  # closed as soon as there is a transport
        if self.end_handshake is not None:
            self.end_handshake()

    def to_be_answered(self) -> Source:
        """Return the waiting frames, how many may be handled now, and the caller."""
        if not self._may_work() or self._stuck or not self._is_inside:
            return self._frames, 0, self._caller
        most = self._limits.max_requests_in_flight - self._answers.unanswered
        return self._frames, min(most, REQUESTS_IN_A_TURN), self._caller

    def go_on(self, taken: int = 0, answers: Iterable[Answer] = ()) -> None:
        """Send or queue the answers of `taken` frames that were removed from the front, and
        continue with the other frames."""
        queue = self._answers
        if taken:
            self._take(answers)
        elif self._frames and self._answers_at_once:
            self._answer_all()
            self._give_back()
            return
        nothing_to_do = (
            not self._frames
            and self._reading
            and not queue.has_come
            and queue.unanswered < self._limits.max_requests_in_flight
            and not (self._reader.unfinished or self._finishing or self._broken)
            and not queue.alone
        )
        if not nothing_to_do:
            self._work(taken)
        self._give_back()

    def _answer_all(self) -> None:
        """Handle the waiting requests, and send finished answers at once. A fast form of `_work`
        for the usual case."""
        outgoing, answers = self._outgoing, self._answers
        frames, waiting = self._frames, len(self._frames)
        most = self._limits.max_requests_in_flight - answers.unanswered
        try:
            self._answer_next(min(most, waiting, REQUESTS_IN_A_TURN))
        except Exception as error:
            self.failed(error)
            return
        if (
            frames
            or answers.made
            or outgoing.unsent
            or not self._reading
            or self._broken
            or (answers.unmade and self._goes_on)
        ):
            self._work(waiting - len(frames))
        elif self._reader.unfinished:
            self._frame_deadline.start()

    def _answer_next(self, most: int) -> None:
        """Answer up to `most` frames. Invalid input breaks the connection."""
        try:
            answers = self._answerer.answer(self._frames, most, self._caller)
        except (ProtocolError, CloseConnection) as error:
            self._break(error)
        else:
            self._take(answers)

    def _take(self, answers: Iterable[Answer]) -> None:
        """Send finished answers and queue the others. An answer that raises an error breaks the
        connection."""
        try:
            for answer in answers:
                self._send_or_queue(answer)
        except (ProtocolError, CloseConnection) as error:
            self._break(error)
        except (FileChanged, OSError) as error:
            self._drop_unsendable(error)

    def _send_or_queue(self, answer: Answer) -> None:
        """Send an answer if it is finished and no answer precedes it; otherwise queue it. While
        `_work` runs, small answers are queued, because it writes them together."""
        answers, outgoing = self._answers, self._outgoing
        if (
            answer is None
            or isinstance(answer, PendingAnswer)
            or answers.made
            or answers.unmade
            or outgoing.unsent
            or outgoing.unread
            or (self._working and isinstance(answer, bytes))
        ):
            answers.add(answer)
            return
        self._host.figures.sent_bytes += len(answer)
        if not isinstance(answer, bytes):
            outgoing.send(answer)
            return
        assert self._transport is not None
        self._transport.write(answer)
        if len(answer) > FREE_BYTES:
            self._host.held_memory.note(self)

    def _break(self, error: ProtocolError | CloseConnection) -> None:
        """Stop answering after invalid input, and close when the earlier answers are sent."""
        reason = "protocol" if isinstance(error, ProtocolError) else "acks_0"
        self._broken = reason, str(error)
        self._frames.clear()

    def failed(self, error: Exception) -> None:
        """Close after a bug. After half-handled requests the connection cannot continue."""
        self._host.observe("connection_failed", peer=self.peer, error=error)
        self._drop("failed", "the broker met something unexpected")

    def _may_work(self) -> bool:
        if self._working or self._transport is None or self._transport.is_closing():
            return False
        held_memory = self._host.held_memory
        return not held_memory.is_short or held_memory.ask_for_room(self._work)

    def _work(self, taken: int = 0) -> None:  # noqa: C901 - the steps of a connection
        """Handle frames and write answers as far as the limits allow.

        `taken` requests were already handled in this pass.
        """
        if not self._may_work():
            return
        self._working = True
        self._waits_for_room = False
        frames = self._frames
        try:
            if self._outgoing:
                self._write()
            if frames:
                left = max(len(frames) - (REQUESTS_IN_A_TURN - taken), 0)
                if len(frames) > left and not self._stuck:
                    self._handle_frames(left)
                if frames and not self._stuck:
                    self._loop.call_soon(self._work)
        except ProtocolError as error:
            # A late answer to a request that cannot be refused in any other way.
            self._drop("protocol", error.cause)
        except CloseConnection as error:
            self._drop("acks_0", str(error))
        except (FileChanged, OSError) as error:
            self._drop_unsendable(error)
        except Exception as error:
            self.failed(error)
        else:
            self._after_work()
        finally:
            self._working = False
        self._host.held_memory.note(self)
        self._note_work()

    def _note_work(self) -> None:
        work_bytes = self._answers.work_bytes
        if work_bytes != self._noted_work_bytes:
            self._noted_work_bytes = work_bytes
            self._host.held_memory.note_work(self, work_bytes)
            if self._reset_look is None and self._transport is not None:
                self._reset_look = self._loop.call_later(RESET_LOOK_SECONDS, self._look_for_reset)

    def _look_for_reset(self) -> None:
        """Abort the connection if the client is gone, which ends its work. The event loop does not
        notice that while nothing is read."""
        self._reset_look = None
        if self._transport is None or not self._noted_work_bytes:
            return
        if not self._reading and was_reset(self._transport.get_extra_info("socket")):
            self.abort()
        else:
            self._reset_look = self._loop.call_later(RESET_LOOK_SECONDS, self._look_for_reset)

    def _drop_unsendable(self, error: Exception) -> None:
        self._drop("file", f"an answer could not be sent to its end: {error}")

    def _handle_frames(self, left: int) -> None:
        """Handle frames and write their answers, until the connection breaks or is stuck, only
        `left` frames remain for the next pass, or the pass took `PASS_SECONDS`."""
        frames, answers = self._frames, self._answers
        most = self._limits.max_requests_in_flight
        until = thread_time() + PASS_SECONDS if len(frames) > left + 1 else inf
        while True:
            self._answer_next(min(most - answers.unanswered, len(frames) - left))
            ends = len(frames) <= left or thread_time() >= until
            if ends or self._stuck:
                self._write()
                if ends or self._stuck:
                    return

    @property
    def _goes_on(self) -> bool:
        """Whether waiting answers need action: the first one can be made, they block the
        connection, or their memory counts."""
        answers = self._answers
        held_bytes = answers.held_bytes + answers.work_bytes
        return answers.has_come or self._stuck or held_bytes > FREE_BYTES

    @property
    def _stuck(self) -> bool:
        answers = self._answers
        return (
            answers.unanswered >= self._limits.max_requests_in_flight
            or answers.alone > 0
            or self._muted is not None
            or self._waits_for_room
            or self._outgoing.is_full
        )

    def _write(self) -> None:
        if self._outgoing.write():
            self.held_since = self._loop.time()

    def _after_work(self) -> None:
        assert self._transport is not None
        ending = self._finishing or self._broken is not None
        if ending:
            if self._answers.hurry():
                self._loop.call_soon(self._work)
            if not self._frames and not self._outgoing:
                if self._broken is not None:
                    self._drop(*self._broken)
                else:
                    self._close()
                return
        reading = not (ending or self._frames or self._stuck)
        if reading != self._reading:
            self._set_reading(reading)
        if reading and self._reader.unfinished:
            # Further bytes of an incomplete request do not extend its deadline.
            self._frame_deadline.start()

    def _set_reading(self, reading: bool) -> None:
        assert self._transport is not None
        self._reading = reading
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
            # While the broker does not read, the client cannot be late.
            self._frame_deadline.stop()

    def _request_is_late(self) -> None:
        self._drop(
            "half_sent",
            f"a request was not complete after {self._limits.deadline_seconds:g} s "
            "(request.deadline.ms)",
        )

    def _reader_is_late(self) -> None:
        if self._outgoing.unsent:
            self._drop(
                "slow_reader",
                "nothing was taken of an answer in "
                f"{self._limits.deadline_seconds:g} s (request.deadline.ms)",
            )
            return
        self._drop(
            "slow_reader",
            f"of more than {self._limits.buffer_bytes} bytes of answers (connection.buffer.bytes) "
            f"not half were read in {self._limits.deadline_seconds:g} s (request.deadline.ms)",
        )

    def _idle_since(self) -> float | None:
        """Return when the last request arrived or was answered; None while there is work."""
        waits = self._frames or self._reader.unfinished or self._answers.unmade
        return self.held_since if not waits and self._answers_at_once else None

    def _was_idle(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        count(self._host.figures.connections_dropped, "idle")
        idle_seconds = round(self._loop.time() - self.held_since)
        self._host.observe("connection_idle", peer=self.peer, idle_seconds=idle_seconds)
        self._close()

    def _drop(self, reason: str, cause: str) -> None:
        """Close because of what the client did. Answers that were already sent may still arrive."""
        if self._transport is None or self._transport.is_closing():
            return
        self._count_dropped(reason, cause)
        self._frames.clear()
        self._outgoing.cancel()
        if self._outgoing.unread:
            self._transport.abort()
        else:
            self._close()

    def _count_dropped(self, reason: str, cause: str) -> None:
        count(self._host.figures.connections_dropped, reason)
        self._host.observe("connection_dropped", peer=self.peer, reason=reason, cause=cause)

    def _close(self) -> None:
        """Close when the client has received what was written, or when the deadline is over."""
        assert self._transport is not None
        self._frame_deadline.stop()
        self._transport.close()
        self._close_deadline = self._loop.call_later(self._limits.deadline_seconds, self.abort)
