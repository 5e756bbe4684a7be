"""From frames to answers: the dispatcher finds the handler, and turns exceptions into errors."""

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby, islice, repeat, takewhile
from operator import attrgetter
from typing import Any, Final, Protocol

from ..protocol.api.broker.api_versions import API_VERSIONS
from ..protocol.api.encodings import Encoding
from ..protocol.api.framing import Frame
from ..protocol.api.groups.offset_fetch import OFFSET_FETCH
from ..protocol.api.log.list_offsets import LIST_OFFSETS
from ..protocol.api.log.produce import PRODUCE
from ..protocol.api.native.frames import Request, RequestHead
from ..protocol.api.pieces import Pieces, emptied, hash_texts, weigher
from ..protocol.api.registry import APIS
from ..protocol.api.schema import Api, ServedBy, kind
from ..protocol.api.writing import AnswersEncoder, Written
from ..protocol.errors import NO_ERROR, CodedError, PolicyViolation, UnsupportedVersion
from ..protocol.limits import LARGE_REQUEST_BYTES
from .handlers import HANDLERS_OF_MANY, MOST_AT_A_TIME
from .handlers.api_versions import unknown_version
from .handlers.base import Services
from .handlers.produce import handle_in_bulk
from .network.endpoint import Admit, Caller, Frames, Source
from .network.ready_connections import BULK_BYTES
from .network.sending import Answer, AnswerInParts
from .outcomes import (
    NO_ERROR_NAME,
    CloseConnection,
    error_finder,
    error_name,
    fault_finder,
    first_error,
    first_error_in_pieces,
)
from .quotas.meter import Charge, Meter
from .requests import Call, Handler, HandlerOfMany, PendingAnswer
from .weights import LARGE_BYTES, Weight, weight_of

_SHORT_BYTES: Final = 1024
"""Answers of up to this many bytes to requests that were handled in bulk are joined into one."""

SLOW_REQUEST_BYTES: Final = 8 * 1024
"""`LARGE_REQUEST_BYTES` for requests that are decoded in plain Python."""

LARGE_WEIGHT: Final = 5_000
"""Responses of a larger weight are encoded in turns with other requests: this is about a
millisecond of work."""

LONG_BYTES: Final = 2 << 20
"""If a request takes more memory, its answer is encoded in turns with other requests: the answer
may repeat long names."""

_body_of: Final[Callable[[Request], Any]] = attrgetter("body")
_id_of: Final[Callable[[Request], int]] = attrgetter("correlation_id")

_WAITS: Final = {PendingAnswer}
_ready_of: Final[Callable[[PendingAnswer], object]] = attrgetter("ready")
_alone_of: Final[Callable[[PendingAnswer], bool]] = attrgetter("alone")
_may_hurry_of: Final[Callable[[PendingAnswer], bool]] = attrgetter("may_hurry")
_held_bytes_of: Final[Callable[[PendingAnswer], int]] = attrgetter("held_bytes")

READ_FIRST_BYTES: Final = 4 * 1024
"""Frames of up to this many bytes are decoded before the check for room: the decoded request shows
exactly how much memory its work takes."""

UNKNOWN_API = "unknown"
"""The `api` label of requests with an unknown key: a client must not be able to make labels."""


@dataclass(slots=True)
class _Exchange:
    """A request that is being answered, and the time at which that `began`."""

    api: Api
    head: RequestHead
    began: float
    request: Any = None
    """The decoded request, kept for as long as a refusal may have to name its items."""
    charge: Charge | None = None
    """The charge to quotas, until the answer is made."""
    work_bytes: int = 0
    """Memory that the request and its answer take while the request is handled."""


class NotAdmitted(Exception):
    """There is no room for the work on a request; the connection tries the request again."""


class _Kind:
    """How requests of one API and version are answered in bulk, if they follow one another."""

    __slots__ = (
        "_answered",
        "api",
        "encode",
        "find_error",
        "find_fault",
        "handle",
        "is_work",
        "most",
        "read",
        "responses",
        "small_frame_bytes",
        "version",
        "weight",
    )

    def __init__(
        self, services: Services, encoding: Encoding, api: Api, version: int, handle: HandlerOfMany
    ) -> None:
        self.api = api
        self.version = version
        self.handle = handle
        self.read: Callable[[Frame], Request | None] = encoding.reader(api, version)
        self.encode: AnswersEncoder = encoding.answers_encoder(api, version)
        self.responses = {api.response}
        self.find_error: Callable[[Any], int] = error_finder(api.response)  # type: ignore[arg-type] # a class is hashable
        self.find_fault: Callable[[Sequence[Any]], bool] = fault_finder(api.response)  # type: ignore[arg-type]
        self.most = MOST_AT_A_TIME.get(api.key, sys.maxsize)
        self.weight = weight_of(api.key, version, encoding.NATIVE)
        self.small_frame_bytes = sys.maxsize
        """Larger frames are not read in bulk: their memory is counted first."""
        if api is not PRODUCE:  # A produce request takes no memory beside its frame.
            self.small_frame_bytes = self.weight.small_frame_bytes
        self.is_work = api is LIST_OFFSETS
        """Whether the memory of small requests is counted, too."""
        self._answered = partial(services.figures.answered, api.name)

    def count(
        self, requests: Sequence[Request], responses: Sequence[Any], seconds: float, faulty: bool
    ) -> None:
        """Count answered requests, each of which took `seconds`."""
        if not faulty:
            self._answered(NO_ERROR_NAME, seconds, len(requests))
            return
        codes = list(map(self.find_error, responses))
        for code in set(codes):
            self._answered(error_name(code), seconds, codes.count(code))


class ChecksRights(Protocol):
    """Checks the rights of a request's principal; `Guard`, if the broker has access rules."""

    def allows(self, api_key: int, caller: Caller) -> Callable[[Any], bool]:
        """Return a function that says whether a request body may be answered in bulk, without a
        check of each resource that the request names."""
        ...


class Dispatcher:
    """Answers the frames of every connection that speaks one encoding."""

    def __init__(
        self,
        services: Services,
        handlers: Mapping[int, Handler],
        encoding: Encoding,
        handlers_of_many: Mapping[int, HandlerOfMany] = HANDLERS_OF_MANY,
        guard: ChecksRights | None = None,
    ) -> None:
        """With a `guard`, which has wrapped `handlers`, requests are answered in bulk as long as
        the client has all rights that they need."""
        self._guard = guard
        self.meter: Meter | None = None
        """Charges requests to quotas; `None` without quotas."""
        self._services = services
        self._encoding = encoding
        self._creations = services.creations
        self._time = services.work.time
        self._kind_of = encoding.kind_of
        self.use(handlers, handlers_of_many)

    def use(
        self, handlers: Mapping[int, Handler], handlers_of_many: Mapping[int, HandlerOfMany]
    ) -> None:
        """Have these answer requests from now on."""
        services, encoding = self._services, self._encoding
        self._handlers = handlers
        self._kinds: dict[int | None, _Kind] = {}
        for key, handle in handlers_of_many.items():
            for version in APIS[key].versions(native=encoding.NATIVE):
                found = _Kind(services, encoding, APIS[key], version, handle)
                self._kinds[kind(key, version)] = found
        self._reads = frozenset(
            key for key in handlers_of_many if APIS[key].served_by is ServedBy.LEADER_OR_FOLLOWER
        )
        self._versions = {
            key: APIS[key].versions(native=encoding.NATIVE) for key in handlers if key in APIS
        }

    def answer_one(self, frame: Frame, caller: Caller) -> Answer:
        """Return the answer to one request, or a `PendingAnswer`.

        Raises `ProtocolError` or `CloseConnection` if the connection has to be closed.
        """
        return self._answer_one(frame, caller, None)

    def _answer_one(self, frame: Frame, caller: Caller, admit: Admit | None) -> Answer:
        """As `answer_one`. Raises `NotAdmitted` if `admit` refuses; the request has had no effect
        then."""
        self._creations.context = caller
        encoding = self._encoding
        head, raw = encoding.open_request(frame)
        if head.api_key == PRODUCE.key:
            # The record sets may be appended in a later turn of the event loop.
            frame = _pinned(frame)
            head, raw = encoding.open_request(frame)
        if head.version not in self._versions.get(head.api_key, ()):
            return self._unsupported(head)
        weight = weight_of(head.api_key, head.version, encoding.NATIVE)
        admitted_bytes = _admitted_by_frame(weight, frame, admit)
        call = Call(
            head.version,
            caller.broker_address,
            kafka=not encoding.NATIVE,
            client_id=head.client_id,
            client_host=caller.host,
            session=caller.session,
        )
        api = APIS[head.api_key]
        exchange = _Exchange(api, head, self._time())
        if self.meter is not None:
            exchange.charge = self.meter.open(api, caller, head.client_id, native=encoding.NATIVE)

        def handle(request: Any) -> Any:
            exchange.request = request
            if exchange.charge is not None:
                exchange.charge.see(request)
            return self._handlers[api.key](self._services, request, call)

        if len(frame) > self._decoded_at_once(api, head.version):
            exchange.work_bytes = weight.of_frame(len(frame))
            if head.api_key != PRODUCE.key:
                raw = encoding.open_request(_pinned(frame))[1]
            return self._handled_later(exchange, raw, caller, admit, handle)

        def answer() -> Answer:
            request = encoding.decode_body(api.request, head.version, raw)
            exchange.work_bytes = len(frame)  # The decoded texts refer to the frame.
            exchange.work_bytes += weight.of_request(self._services, request, head.version)
            more = exchange.work_bytes > admitted_bytes
            if more and admit is not None and not admit(exchange.work_bytes):
                raise NotAdmitted
            return self._respond(exchange, handle(request))

        return self._guarded(exchange, answer)

    def _decoded_at_once(self, api: Api, version: int) -> int:
        """Return the largest size in bytes of a request that is decoded without a break."""
        slowly = self._encoding.decodes_slowly(api.request, version)
        return SLOW_REQUEST_BYTES if slowly else LARGE_REQUEST_BYTES

    def _handled_later(
        self,
        exchange: _Exchange,
        raw: Any,
        caller: Caller,
        admit: Admit | None,
        handle: Callable[[Any], Any],
    ) -> PendingAnswer:
        """Return the pending answer to a request that is decoded in turns with other requests. The
        requests after it on its connection wait until it is handled."""
        work, encoding = self._services.work, self._encoding
        turns = work.turns()

        async def handled() -> Any:
            pieces = encoding.decode_in_pieces(exchange.api.request, exchange.head.version, raw)
            request = await work.finish(pieces, turns)
            await work.finish(hash_texts(request), turns)
            self._check_room(exchange, request, admit)
            self._creations.context = caller
            return handle(request)

        task = work.start(handled())
        held_bytes = len(raw.frame) if exchange.api is PRODUCE else 0
        pending = PendingAnswer(task, task.result, alone=True, held_bytes=held_bytes, turns=turns)
        return self._pending(exchange, pending)

    def _check_room(self, exchange: _Exchange, request: Any, admit: Admit | None) -> None:
        """Check that there is room for the answer to a decoded request, beyond the memory that was
        counted for its frame. Raises `PolicyViolation` if there is not."""
        head = exchange.head
        weight = weight_of(head.api_key, head.version, self._encoding.NATIVE)
        work_bytes = weight.of_request(self._services, request, head.version)
        more_bytes = work_bytes - exchange.work_bytes
        if more_bytes <= 0:
            return
        if admit is not None and not admit(more_bytes, begun=True):
            raise PolicyViolation(
                f"the answer to this request would take {work_bytes} bytes, for which there is no "
                "room now (max.buffered.bytes); ask for less at a time"
            )
        exchange.work_bytes = work_bytes

    def waits_for_others(self, frame: Frame) -> bool:
        """Whether a request is handled together with requests of other connections in this turn of
        the event loop. Reads are not, nor requests that are never handled together, such as a
        follower's fetches."""
        found = self._kind_of(frame)
        return found is not None and found >> 8 not in self._reads

    def answer(self, frames: Frames, most: int, caller: Caller) -> Iterable[Answer]:
        """Take the next request off `frames` and answer it, as `answer_one`.

        If the API is answered in bulk, the requests of the same API and version that follow are
        answered too, up to `most` together: appends that share a write cost a fraction each.
        Empty if there is no room for the work on the request.
        """
        found = self._kinds.get(self._kind_of(frames[0]))
        try:
            requests = () if found is None else self._taken(found, frames, most, caller)
            if found is None or not requests:
                return (self._answer_first(frames, caller),)
        except NotAdmitted:
            return ()
        self._creations.context = caller
        began = self._time()
        charges = () if self.meter is None else self._charges(found, requests, caller)
        try:
            bodies = list(map(_body_of, requests))
            outcomes = found.handle(self._services, found.version, bodies)
        except Exception as error:
            outcomes = [error] * len(requests)
        if charges:
            seconds = (self._time() - began) / len(requests)
            return self._answers_one_by_one(found, requests, charges, outcomes, began, seconds)
        return self._answers(found, requests, outcomes, began)

    def answer_in_bulk(self, sources: Sequence[Source]) -> Sequence[tuple[int, Iterable[Answer]]]:
        """Take produce requests off the frames of several connections and handle them together.

        Each source is the frames, the largest number of requests to take, and the caller. Returns
        for each source how many requests were taken, and their answers; iterating over these
        raises what `answer_one` raises.
        """
        began = self._time()
        taken: list[tuple[_Kind, Sequence[Request], Sequence[Charge | None]] | None] = []
        contexts: list[Caller] = []
        for frames, most, caller in sources:
            found = self._kinds.get(self._kind_of(frames[0])) if most and frames else None
            requests: Sequence[Request] = ()
            if found is not None and found.api is PRODUCE:
                requests = self._taken(found, frames, most, caller)
            if found is None or not requests:
                taken.append(None)
                continue
            charges = () if self.meter is None else self._charges(found, requests, caller)
            taken.append((found, requests, charges))
            contexts.append(caller)
        bodies = [list(map(_body_of, each[1])) for each in taken if each is not None]
        try:
            together = handle_in_bulk(self._services, bodies, contexts) if bodies else ()
            outcomes: Iterator[Sequence[Any]] = iter(together)
        except Exception as error:
            outcomes = iter([[error] * len(of_one) for of_one in bodies])
        seconds = (self._time() - began) / (sum(map(len, bodies)) or 1)
        answers: list[tuple[int, Iterable[Answer]]] = []
        for each in taken:
            if each is None:
                answers.append((0, ()))
                continue
            found, requests, charges = each
            of_one = next(outcomes)
            made = (
                self._answers_one_by_one(found, requests, charges, of_one, began, seconds)
                if charges
                else self._answers(found, requests, of_one, began)
            )
            answers.append((len(requests), made))
        return answers

    def _taken(self, found: _Kind, frames: Frames, most: int, caller: Caller) -> Sequence[Request]:
        """Take up to `most` requests of one kind off the front of `frames`, as far as they may be
        answered without a check of each resource that they name. Raises `NotAdmitted`."""
        if len(frames) == 1 and most and self._guard is None and not found.is_work:
            if len(frames[0]) > found.small_frame_bytes:
                return ()
            request = found.read(frames[0])
            if request is None:
                return ()
            frames.clear()
            return (request,)
        first = list(islice(frames, min(most, found.most)))
        if found.api is not PRODUCE:
            first = list(takewhile(lambda frame: len(frame) <= found.small_frame_bytes, first))
        if len(first) > 1 and sum(map(len, first)) > BULK_BYTES:
            ends = list(accumulate(map(len, first)))
            del first[bisect_left(ends, BULK_BYTES) + 1 :]
        # Requests after one that is not taken come up again once those before it are answered.
        read: Iterator[Request] = takewhile(bool, map(found.read, first))  # type: ignore[arg-type]
        if self._guard is not None:
            allows = self._guard.allows(found.api.key, caller)
            read = takewhile(lambda request: allows(request.body), read)
        requests = list(read)
        if found.is_work:
            requests = list(self._admitted(found, requests, caller))
        if len(requests) == len(frames):
            frames.clear()
        else:
            for _ in requests:
                frames.popleft()
        return requests

    def _admitted(
        self, found: _Kind, requests: Sequence[Request], caller: Caller
    ) -> Sequence[Request]:
        """Return the first of some small requests, which together take at most `LARGE_BYTES` of
        memory, and at least one request. Raises `NotAdmitted`."""
        work_bytes = count = 0
        for request in requests:
            more_bytes = found.weight.of_request(self._services, request.body, found.version)
            if count and work_bytes + more_bytes > LARGE_BYTES:
                break
            work_bytes += more_bytes
            count += 1
        if count and caller.admit is not None and not caller.admit(work_bytes):
            raise NotAdmitted
        return requests[:count]

    def _answer_first(self, frames: Frames, caller: Caller) -> Answer:
        """Take the first frame and answer it. Raises `NotAdmitted`; the frame is put back then."""
        frame = frames.popleft()
        try:
            return self._answer_one(frame, caller, caller.admit)
        except NotAdmitted:
            frames.appendleft(frame)
            raise

    def _charges(
        self, found: _Kind, requests: Sequence[Request], caller: Caller
    ) -> Sequence[Charge | None]:
        """Return the charges of requests to quotas; empty if no quota holds for any of them."""
        assert self.meter is not None
        native = self._encoding.NATIVE
        charges = [
            self.meter.open(found.api, caller, each.client_id, native=native) for each in requests
        ]
        for charge, request in zip(charges, requests, strict=True):
            if charge is not None:
                charge.see(request.body)
        return charges if any(charges) else ()

    def _answers(
        self,
        found: _Kind,
        requests: Sequence[Request],
        outcomes: Sequence[Any],
        began: float,
    ) -> Iterable[Answer]:
        """Return the answers to handled requests of one kind; short answers are joined."""
        made: list[Written] = []
        if set(map(type, outcomes)) == found.responses and len(outcomes) == len(requests):
            if found.api is not PRODUCE and any(map(_is_large, outcomes)):
                return self._answers_one_by_one(found, requests, (), outcomes, began)
            faulty = found.find_fault(outcomes)
            try:
                made = found.encode(map(_id_of, requests), outcomes, faulty=faulty)
            except Exception:  # For example `MemoryError`: some can be answered one by one.
                made = []
        elif found.api is PRODUCE and _only_wait(outcomes):
            return [
                self._answers_later(found, requests[begin:end], outcomes[begin:end], began)
                for begin, end in _runs(outcomes)
            ]
        if not made:
            return self._answers_one_by_one(found, requests, (), outcomes, began)
        seconds = self._time() - began
        if len(requests) > 1:
            self._services.deferrals.add(found.count, requests, outcomes, seconds, faulty)
        else:  # Deferring takes as long, and would hold the memory of a large request.
            found.count(requests, outcomes, seconds, faulty)
        if len(made) > 1 and max(map(len, made)) <= _SHORT_BYTES:
            return (b"".join(made),)  # type: ignore[arg-type] # an answer in parts is longer
        if list in map(type, made):
            return [each if isinstance(each, bytes) else AnswerInParts(each) for each in made]
        return made  # type: ignore[return-value] # all of them are bytes

    def _answers_later(
        self,
        found: _Kind,
        requests: Sequence[Request],
        outcomes: Sequence[PendingAnswer],
        began: float,
    ) -> PendingAnswer:
        """Return one pending answer to produce requests that share a wait."""
        for request in requests:
            request.body = None  # Release the record sets: they may take long to be durable.

        def make() -> bytes:
            responses = list(map(_response_of, outcomes))
            return b"".join(map(_in_memory, self._answers(found, requests, responses, began)))

        held_bytes = sum(map(_held_bytes_of, outcomes))
        return PendingAnswer(outcomes[0].ready, make, held_bytes=held_bytes, requests=len(requests))

    def _answers_one_by_one(
        self,
        found: _Kind,
        requests: Sequence[Request],
        charges: Sequence[Charge | None],
        outcomes: Sequence[Any],
        began: float,
        seconds: float = 0,
    ) -> Iterator[Answer]:
        """As `_answers`, one answer for each request; `seconds` is the time that each request took
        of the event loop."""
        for request, charge, outcome in zip(
            requests, charges or repeat(None), outcomes, strict=False
        ):
            exchange = _Exchange(found.api, _head_of(request), began, request.body, charge)
            if found.is_work and isinstance(outcome, PendingAnswer):
                exchange.work_bytes = found.weight.of_request(
                    self._services, request.body, found.version
                )
            if charge is not None:
                charge.add_seconds(seconds)
            yield self._guarded(exchange, partial(self._answer_with, exchange, outcome))

    def _answer_with(self, exchange: _Exchange, outcome: Any) -> Answer:
        if isinstance(outcome, Exception):
            raise outcome
        return self._respond(exchange, outcome)

    def _respond(self, exchange: _Exchange, response: Any) -> Answer:
        """Return the answer with `response`, which may be pending."""
        if isinstance(response, PendingAnswer):
            return self._pending(exchange, response)
        if exchange.charge is not None:
            response = _charged(exchange, response)
        if response is None:
            self._count(exchange, NO_ERROR)
            return None
        if exchange.work_bytes > LONG_BYTES or _is_large(response):
            return self._written_later(exchange, response)
        head, code = exchange.head, first_error(response)
        encode = self._encoding.answers_encoder(exchange.api, head.version)
        (answer,) = encode((head.correlation_id,), (response,))
        self._count(exchange, code)
        return answer if isinstance(answer, bytes) else AnswerInParts(answer)

    def _pending(self, exchange: _Exchange, pending: PendingAnswer) -> PendingAnswer:
        work_bytes = exchange.work_bytes
        if exchange.api is PRODUCE:
            exchange.request = None  # Release the record sets: they may take long to be durable.
            work_bytes = 0
        make = pending.make
        if exchange.charge is not None:
            make = exchange.charge.timed(make, pending.turns)
        return PendingAnswer(
            pending.ready,
            lambda: self._guarded(exchange, lambda: self._respond(exchange, make())),
            pending.may_hurry,
            pending.alone,
            pending.held_bytes,
            work_bytes=work_bytes,
            is_large=work_bytes > LARGE_BYTES,
            is_waiting=pending.is_waiting,
        )

    def _written_later(self, exchange: _Exchange, response: Any) -> PendingAnswer:
        """Return a pending answer, which is encoded in turns with other requests."""
        return self._in_turns(exchange, self._answer_in_pieces(exchange, response))

    def _answer_in_pieces(self, exchange: _Exchange, response: Any) -> Pieces[tuple[Written, int]]:
        api, head = exchange.api, exchange.head
        code = yield from first_error_in_pieces(response)
        written = yield from self._encoding.answer_in_pieces(
            api, head.version, head.correlation_id, response
        )
        if api is OFFSET_FETCH:
            # Its lists were made for this answer, and may have a million items.
            yield from emptied(response)
        return written, code

    def _refusal_in_pieces(
        self, exchange: _Exchange, request: Any, code: int, message: str
    ) -> Pieces[tuple[Written, int]]:
        written = yield from self._encoding.refuse_in_pieces(
            exchange.head, exchange.api, request, code, message
        )
        return written, code

    def _in_turns(self, exchange: _Exchange, pieces: Pieces[tuple[Written, int]]) -> PendingAnswer:
        """Return a pending answer from the pieces of its frame and error code."""
        work = self._services.work
        task = work.start_pieces(pieces, work.turns())

        def make() -> Answer:
            written, code = task.result()
            self._count(exchange, code)
            return written if isinstance(written, bytes) else AnswerInParts(written)

        work_bytes = exchange.work_bytes
        return PendingAnswer(
            task,
            lambda: self._guarded(exchange, make),
            alone=True,
            work_bytes=work_bytes,
            is_large=work_bytes > LARGE_BYTES,
        )

    def _guarded(self, exchange: _Exchange, step: Callable[[], Answer]) -> Answer:
        """Return the result of `step`, or the error answer for an exception that it raises. Lets
        `NotAdmitted` and `CloseConnection` pass."""
        try:
            return step()
        except NotAdmitted:
            raise
        except CloseConnection as closing:
            self._count(exchange, closing.code)
            raise
        except Exception as error:
            code, message = self._services.outcomes.of(error, api=exchange.api.name)
            if exchange.charge is not None:
                _charged(exchange, None)
            if exchange.request is not None and _is_large(exchange.request):
                pieces = self._refusal_in_pieces(exchange, exchange.request, code, message)
                exchange.request = None
                return self._in_turns(exchange, pieces)
            self._count(exchange, code)
            return self._encoding.encode_refusal(
                exchange.head, exchange.api, exchange.request, code, message
            )

    def _unsupported(self, head: RequestHead) -> bytes:
        """Return the answer to a request whose API or version the encoding does not have."""
        encoding = self._encoding
        api = APIS.get(head.api_key)
        if api is not None and head.api_key not in self._versions:
            api = None
        name = UNKNOWN_API if api is None else api.name
        code = error_name(UnsupportedVersion.code)
        self._services.figures.answered(name, code, 0.0)
        if api is API_VERSIONS:
            # A client newer than this broker learns here which versions the broker has.
            several = self._services.replication.replicates
            unknown = unknown_version(native=encoding.NATIVE, several=several)
            return encoding.encode_response(head.correlation_id, api, api.min_version, unknown)
        error = unsupported(head.api_key, head.version, api, native=encoding.NATIVE)
        return encoding.encode_refusal(head, None, None, error.code, error.message)

    def _count(self, exchange: _Exchange, code: int) -> None:
        """Count an answered request in the metrics."""
        seconds = self._time() - exchange.began
        self._services.figures.answered(exchange.api.name, error_name(code), seconds)


def _admitted_by_frame(weight: Weight, frame: Frame, admit: Admit | None) -> int:
    """Return how many bytes were admitted for a request before it is decoded; 0 for a small frame,
    which is decoded first. Raises `NotAdmitted`."""
    if admit is None or len(frame) <= READ_FIRST_BYTES:
        return 0
    work_bytes = weight.of_frame(len(frame))
    if not admit(work_bytes):
        raise NotAdmitted
    return work_bytes


def _is_large(message: Any) -> bool:
    """Whether encoding a response, or walking through a request, takes long."""
    return weigher(type(message))(message, LARGE_WEIGHT) > LARGE_WEIGHT


def _pinned(frame: Frame) -> memoryview:
    """Return a frame that does not change when the connection receives more. A `memoryview` may lie
    in a receive buffer that connections share, and is copied; a frame with memory of its own is
    protected by a view, without which that memory would be used again."""
    return memoryview(bytearray(frame) if isinstance(frame, memoryview) else frame)


def _only_wait(outcomes: Sequence[Any]) -> bool:
    """Whether all outcomes are pending, without further conditions."""
    if set(map(type, outcomes)) != _WAITS:
        return False
    return not (any(map(_alone_of, outcomes)) or any(map(_may_hurry_of, outcomes)))


def _response_of(outcome: PendingAnswer) -> Any:
    """Return the response of a pending answer, or the exception that making it raises."""
    try:
        return outcome.make()
    except Exception as error:
        return error


def _runs(outcomes: Sequence[PendingAnswer]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each run of answers that share a wait."""
    end = 0
    for _, same in groupby(outcomes, _ready_of):
        begin, end = end, end + len(list(same))
        yield begin, end


def _in_memory(answer: Answer) -> bytes:
    assert isinstance(answer, bytes)
    return answer


def _charged(exchange: _Exchange, response: Any) -> Any:
    """Charge a response to the quotas of its request, and return it; `None` is a refusal."""
    charge, exchange.charge = exchange.charge, None
    assert charge is not None
    return charge.close(response)


def _head_of(request: Request) -> RequestHead:
    """Return only the head of a request, so that keeping it does not keep the record sets."""
    return RequestHead(request.api_key, request.version, request.correlation_id, request.client_id)


def unsupported(api_key: int, version: int, api: Api | None, *, native: bool) -> CodedError:
    """Return the error for a request whose API or version the encoding does not have."""
    if api is None or not api.versions(native=native):
        known = ", ".join(
            f"{each.key} {each.name}" for each in APIS.values() if each.versions(native=native)
        )
        return UnsupportedVersion(f"request {api_key} is unknown; there are {known}")
    return UnsupportedVersion(
        f"{api.name} version {version} is unknown; "
        f"versions {api.min_version} to {api.last_version(native=native)} are served"
    )
