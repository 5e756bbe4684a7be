"""From a frame to its answer: which handler, and what its exceptions become."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..protocol.api import native
from ..protocol.api.api_versions import API_VERSIONS
from ..protocol.api.framing import ProtocolError
from ..protocol.api.produce import PRODUCE, ProduceRequest
from ..protocol.api.registry import APIS
from ..protocol.api.schema import Api
from ..protocol.errors import NO_ERROR, HorologError, UnsupportedVersion
from .gathering import GATHERED_BYTES
from .handlers import HANDLERS_OF_MANY
from .handlers.api_versions import unknown_version
from .handlers.base import Call, Handler, HandlerOfMany, Later, Services
from .outcomes import CloseConnection, error_name, first_error
from .repeated_produce import Frames, RepeatedProduces
from .sending import Answer, AnswerInParts, Deferred

UNKNOWN_API = "unknown"
"""The `api` label of requests that do not exist: what a client makes up is no label."""


class Dispatcher:
    """Answers the frames of every connection."""

    def __init__(
        self,
        services: Services,
        handlers: Mapping[int, Handler],
        handlers_of_many: Mapping[int, HandlerOfMany] = HANDLERS_OF_MANY,
    ) -> None:
        self._services = services
        self._handlers = handlers
        self._handlers_of_many = handlers_of_many
        self._time = services.work.time
        self._repeated = RepeatedProduces(services)

    def answer_one(self, frame: native.Frame, local_address: tuple[str, int]) -> Answer:
        """The answer of one request, or `Deferred` when it has to wait.

        Raises `ProtocolError` or `CloseConnection` when the connection has to be closed.
        """
        head, raw = native.open_request(frame)
        api = APIS.get(head.api_key)
        if (
            api is None
            or head.version not in api.versions(native=True)
            or api.key not in self._handlers
        ):
            return self._unsupported(head, api)
        call = Call(head.version, local_address, client_id=head.client_id)
        began = self._time()

        def handle() -> Answer:
            request = native.decode_body(api.request, head.version, raw)
            if api is PRODUCE:
                self._repeated.learn(head, request)
            response = self._handlers[api.key](self._services, request, call)
            return self._respond(api, head, response, began)

        return self._guarded(api, head, handle, began)

    def answer(
        self, frames: deque[bytes | bytearray], most: int, local_address: tuple[str, int]
    ) -> Iterable[Answer]:
        """Take the next request off `frames` and answer it, as `answer_one`.

        If others of a kind that is answered together stand right behind it, they are, up to `most`
        of them: appends that share a write cost a fraction of themselves.
        """
        answers = self._repeated.answer(frames, most, GATHERED_BYTES)
        if answers:
            return answers
        if len(frames) > 1:
            key = native.likely_api_key(frames[0])
            if key is not None and key in self._handlers_of_many:
                opened = self._open_alike(APIS[key], frames, most)
                if opened:
                    return self._answer_alike(APIS[key], opened)
        return (self.answer_one(frames.popleft(), local_address),)

    def answer_together(self, sources: Sequence[tuple[Frames, int]]) -> list[list[Answer]]:
        """Take requests off the frames of several connections whose answers cost a fraction when
        they are made together; of each connection the first ones, up to so many."""
        return self._repeated.answer_all(sources, GATHERED_BYTES)

    def _open_alike(
        self, api: Api, frames: deque[bytes | bytearray], most: int
    ) -> list[tuple[native.RequestHead, native.Body]]:
        """Take the requests of one kind off the front of `frames`."""
        opened: list[tuple[native.RequestHead, native.Body]] = []
        size = 0
        while frames and len(opened) < most and size < GATHERED_BYTES:
            frame = frames[0]
            if native.likely_api_key(frame) != api.key:
                break
            try:
                head, body = native.open_request(frame)
            except ProtocolError:
                break  # It is met again when those before it have been answered.
            if head.version not in api.versions(native=True):
                break
            opened.append((head, body))
            size += len(frames.popleft())
        return opened

    def _answer_alike(
        self, api: Api, opened: Sequence[tuple[native.RequestHead, native.Body]]
    ) -> Iterator[Answer]:
        began = self._time()
        requests = [_decoded(api, head, body) for head, body in opened]
        if api is PRODUCE and isinstance(requests[0], ProduceRequest):
            self._repeated.learn(opened[0][0], requests[0])
        outcomes = iter(self._handle_alike(api, requests))
        for (head, _), request in zip(opened, requests, strict=True):
            outcome = request if isinstance(request, Exception) else next(outcomes)
            answer = partial(self._answer_with, api, head, outcome, began)
            yield self._guarded(api, head, answer, began)

    def _handle_alike(self, api: Api, requests: Sequence[Any]) -> Sequence[Any]:
        """The outcomes of those requests that could be decoded."""
        decoded = [request for request in requests if not isinstance(request, Exception)]
        try:
            return self._handlers_of_many[api.key](self._services, decoded)
        except Exception as error:
            return [error] * len(decoded)

    def _answer_with(
        self, api: Api, head: native.RequestHead, outcome: Any, began: float
    ) -> Answer:
        if isinstance(outcome, Exception):
            raise outcome
        return self._respond(api, head, outcome, began)

    def _respond(self, api: Api, head: native.RequestHead, response: Any, began: float) -> Answer:
        """The answer that carries `response`, which may be one that comes later."""
        if isinstance(response, Later):
            return Deferred(
                response.ready,
                lambda: self._guarded(
                    api, head, lambda: self._respond(api, head, response.make(), began), began
                ),
                response.may_hurry,
            )
        if response is None:
            self._count(api.name, NO_ERROR, began)
            return None
        answer = native.encode_answer(head.correlation_id, api, head.version, response)
        self._count(api.name, first_error(response), began)
        return answer if isinstance(answer, bytes) else AnswerInParts(answer)

    def _guarded(
        self, api: Api, head: native.RequestHead, step: Callable[[], Answer], began: float
    ) -> Answer:
        """What `step` returns, or the error answer of what it raises."""
        try:
            return step()
        except CloseConnection as closing:
            self._count(api.name, closing.code, began)
            raise
        except Exception as error:
            code, message = self._services.outcomes.of(error, api=api.name)
            self._count(api.name, code, began)
            return native.encode_error(head.correlation_id, code, message)

    def _unsupported(self, head: native.RequestHead, api: Api | None) -> bytes:
        name = UNKNOWN_API if api is None else api.name
        self._count(name, UnsupportedVersion.code, self._time())
        if api is API_VERSIONS:
            # Whoever asks with a version from the future learns which versions there are.
            return native.encode_response(
                head.correlation_id,
                API_VERSIONS,
                API_VERSIONS.last_version(native=True),
                unknown_version(native=True),
            )
        error = unsupported(head.api_key, head.version, api)
        return native.encode_error(head.correlation_id, error.code, error.message)

    def _count(self, api_name: str, code: int, began: float) -> None:
        """Count a request whose answer is made; it was taken up at `began`."""
        self._services.figures.answered(api_name, error_name(code), self._time() - began)


def _decoded(api: Api, head: native.RequestHead, body: native.Body) -> Any:
    """The request, or what is wrong with it."""
    try:
        return native.decode_body(api.request, head.version, body)
    except Exception as error:
        return error


def unsupported(api_key: int, version: int, api: Api | None) -> HorologError:
    """The error for a request that this broker does not have, or not in this version."""
    if api is None:
        known = ", ".join(f"{each.key} {each.name}" for each in APIS.values())
        return UnsupportedVersion(f"request {api_key} is unknown; there are {known}")
    return UnsupportedVersion(
        f"{api.name} version {version} is unknown; "
        f"versions {api.min_version} to {api.last_version(native=True)} are served"
    )
