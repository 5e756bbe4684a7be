"""Faults that a test has a broker make: errors, late and lost answers, closed connections,
throttled clients, rebalances.

While a fault waits for its request, every request passes through here on its way to its handler.
Otherwise none does: the broker then has the handlers that `horolog serve` has.
"""

import asyncio
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, NamedTuple

from ..protocol.api.kafka.refusals import answering_array, named_field, refusal, refused_each
from ..protocol.api.log.produce import PRODUCE
from ..protocol.api.pieces import finish
from ..protocol.api.registry import APIS
from ..protocol.api.schema import Api, all_fields, replaced
from ..protocol.api.topics.metadata import METADATA, MetadataResponse
from ..protocol.errors import ERRORS, NO_ERROR, CodedError, UnknownServerError
from ..server.broker import Broker
from ..server.handlers.produce import NO_ANSWER
from ..server.outcomes import CloseConnection
from ..server.requests import Call, Handler, PendingAnswer, then
from ..values import value_class
from .clock import check_number

DELAY_SECONDS_MAX: Final = 3600.0
"""Longest delay and throttle time."""

DEADLINE_SECONDS: Final = 30
"""Maximum time to arm a fault, and to begin a rebalance."""

INJECTED_MAX: Final = 100_000
"""Number of injected faults that are recorded."""

_EARLIER_NAMES: Final = {"NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER"}
"""Names that errors had in earlier versions of Kafka."""

_INT16_MIN, _INT16_MAX = -(2**15), 2**15 - 1


@value_class
class RecordedFault:
    """A fault that a request met, or that was made at once."""

    kind: str
    """The name of the method of `BrokerFaults`."""
    at_ms: int
    """Time on the broker's clock."""
    api: str = ""
    """Name of the request, such as `produce`."""
    topics: Sequence[str] = ()
    """The topics that the request names."""
    client_id: str | None = None
    detail: str = ""
    """The name of the error, the seconds, or the group."""


class _InterceptedRequest(NamedTuple):
    """A request that meets a fault, and the handler that would answer it."""

    api: Api
    handler: Handler
    services: Any
    body: Any
    call: Call

    def handle(self) -> Any:
        """Return the outcome of the handler. Raises the errors of the request."""
        return self.handler(self.services, self.body, self.call)

    @property
    def topics(self) -> Sequence[str]:
        """The names in the request's first array, or its topic."""
        topic = getattr(self.body, "topic", None)
        if isinstance(topic, str):
            return (topic,)
        if not _names_topics(self.api):
            return ()
        return tuple(map(_name_of, getattr(self.body, named_field(type(self.body))) or ()))


def _names_topics(api: Api) -> bool:
    """Whether requests of this API name topics."""
    return (
        api is METADATA
        or answering_array(api.response) is not None
        or any(each.name == "topic" for each in all_fields(api.request))
    )


Inject = Callable[[_InterceptedRequest], Any]


@dataclass(slots=True, eq=False)
class BrokerFault:
    """A fault that waits for a request, and which requests it is for."""

    kind: str
    api: Api | None
    topic: str | None
    client_id: str | None
    left: int | None
    """How many requests will meet it; `None` for all."""
    detail: str
    inject: Inject

    def is_for(self, request: _InterceptedRequest) -> bool:
        """Whether this request meets the fault."""
        if self.api is not None and self.api is not request.api:
            return False
        if self.client_id is not None and self.client_id != request.call.client_id:
            return False
        return self.topic is None or self.topic in request.topics


@value_class
class ArmedFaults:
    """The faults of a broker at one time, to be given back to it by `BrokerFaults.put_back`."""

    waiting: Sequence[BrokerFault] = ()
    injected: Sequence[RecordedFault] = ()


class BrokerFaults:
    """The faults of one broker, from any thread.

    The methods take the API by Kafka's name (`Produce`, `ListOffsets`) or by Horolog's
    (`list-offsets`); without one, every request meets the fault. `topic` and `client_id` narrow
    that down. `times` is how many requests meet the fault, `None` for all until `clear`.
    """

    def __init__(self, now_ms: Callable[[], int], stop: Callable[[], None]) -> None:
        """`now_ms` is the broker's clock; `stop` stops the broker, or the leader of a cluster."""
        self._now_ms = now_ms
        self._stop = stop
        self._lock = threading.Lock()
        self._armed: list[BrokerFault] = []
        self._broker: Broker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.injected: list[RecordedFault] = []
        """What was injected, in order; the first `INJECTED_MAX`."""

    def fail(
        self,
        api: str | None = None,
        error: str | int = "UNKNOWN",
        *,
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
    ) -> None:
        """Answer with `error`, a name or a code of Kafka's, and do nothing.

        The error stands where the answer of that API has it: at the top, or at each partition. With
        `topic`, the other topics of the request are handled. Raises `ValueError`.
        """
        code = error_code(error)
        name = ERRORS[code].name if code in ERRORS else str(code)
        self._add("fail", api, topic, client_id, times, name, partial(_fail, code, topic))

    def delay(
        self,
        api: str | None = None,
        seconds: float = 1.0,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
    ) -> None:
        """Handle the request at once, and answer it `seconds` later, of real time."""
        _check_seconds(seconds)
        inject = partial(_delay, seconds)
        self._add("delay", api, topic, client_id, times, f"{seconds:g} s", inject)

    def drop_connection(
        self,
        api: str | None = None,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
    ) -> None:
        """Close the connection instead of handling the request."""
        self._add("drop_connection", api, topic, client_id, times, "", _drop)

    def lose_answer(
        self,
        api: str | None = None,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
    ) -> None:
        """Handle the request to its end, and close the connection instead of answering: the client
        does not know whether it was handled."""
        self._add("lose_answer", api, topic, client_id, times, "", _lose)

    def throttle(
        self,
        api: str | None = None,
        seconds: float = 1.0,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
    ) -> None:
        """Answer with this throttle time, and read nothing more from the connection that long, as
        for a client over its quota."""
        _check_seconds(seconds)
        inject = partial(_throttle, seconds)
        self._add("throttle", api, topic, client_id, times, f"{seconds:g} s", inject)

    def rebalance(self, group: str) -> None:
        """Have all members of a group join again. Raises `ValueError` for a group without
        members."""

        async def begin(broker: Broker) -> None:
            service = broker.services.groups
            known = service.coordinator.groups.get(group)
            if known is None or not known.members:
                raise ValueError(f"group {group!r} has no members that could join again")
            with service.coordinator._step(known):
                known._rebalance(service._now())
            service._arrange()

        self._run(begin)
        self._record("rebalance", detail=group)

    def stop_leader(self) -> None:
        """Stop the broker, or the leader of a cluster. Connections are refused until `start()` of
        that broker starts it again, with the same addresses."""
        self._stop()
        self._record("stop_leader")

    def clear(self) -> None:
        """Forget the faults that wait, and what was injected."""
        self.put_back(ArmedFaults())

    def armed(self) -> ArmedFaults:
        """Return the faults that wait now, and what was injected."""
        with self._lock:
            waiting = tuple(replace(each) for each in self._armed)  # Their `left` will change.
        return ArmedFaults(waiting, tuple(self.injected))

    def put_back(self, before: ArmedFaults) -> None:
        """Have the faults wait that waited at an earlier time, as often as then."""
        with self._lock:
            self._armed[:] = [replace(each) for each in before.waiting]
        self.injected = list(before.injected)
        self._arrange()

    @property
    def waiting(self) -> Sequence[BrokerFault]:
        """The faults that wait for their requests."""
        with self._lock:
            return tuple(self._armed)

    def attach(self, broker: Broker | None) -> None:
        """Inject into this broker from now on; called in the loop of the broker. `None`: there is
        no broker."""
        self._broker = broker
        self._loop = None if broker is None else asyncio.get_running_loop()
        if broker is not None and self._armed:
            self._intercept()

    def _add(
        self,
        kind: str,
        api: str | None,
        topic: str | None,
        client_id: str | None,
        times: int | None,
        detail: str,
        inject: Inject,
    ) -> None:
        _check_times(times)
        _check_text("topic", topic)
        _check_text("client_id", client_id)
        chosen = None if api is None else api_named(api)
        if topic is not None and chosen is not None and not _names_topics(chosen):
            raise ValueError(
                f"topic {topic!r}: no {chosen.name} request names a topic: leave topic out"
            )
        fault = BrokerFault(kind, chosen, topic, client_id, times, detail, inject)
        with self._lock:
            self._armed.append(fault)
        self._arrange()

    def _arrange(self) -> None:
        """Have the broker pass its requests through here, or no longer. Waits until it does."""
        if self._broker is not None:

            async def change(_: Broker) -> None:
                self._intercept()

            self._run(change)

    def _run(self, call: Callable[[Broker], Any]) -> None:
        if self._broker is None or self._loop is None:
            raise RuntimeError("the broker is stopped: start() it first")
        done = asyncio.run_coroutine_threadsafe(call(self._broker), self._loop)
        done.result(DEADLINE_SECONDS)

    def _intercept(self) -> None:
        if self._broker is not None:
            self._broker.intercept(self._wrapped if self._armed else None)

    def _wrapped(self, handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
        return {key: self._meeting(APIS[key], handler) for key, handler in handlers.items()}

    def _meeting(self, api: Api, handler: Handler) -> Handler:
        """Return a handler whose requests meet the faults that wait."""

        def handle(services: Any, body: Any, call: Call) -> Any:
            request = _InterceptedRequest(api, handler, services, body, call)
            fault = self._take(request)
            return request.handle() if fault is None else fault.inject(request)

        return handle

    def _take(self, request: _InterceptedRequest) -> BrokerFault | None:
        """Return the first fault for a request, one time fewer."""
        with self._lock:
            fault = next((each for each in self._armed if each.is_for(request)), None)
            if fault is None:
                return None
            if fault.left is not None:
                fault.left -= 1
                if not fault.left:
                    self._armed.remove(fault)
            if not self._armed:
                asyncio.get_running_loop().call_soon(self._intercept)
        self._record(
            fault.kind,
            api=request.api.name,
            topics=request.topics,
            client_id=request.call.client_id,
            detail=fault.detail,
        )
        return fault

    def _record(self, kind: str, **fields: Any) -> None:
        if len(self.injected) < INJECTED_MAX:
            self.injected.append(RecordedFault(kind, self._now_ms(), **fields))


def api_named(name: str) -> Api:
    """Return the API with this name, Kafka's or Horolog's. Raises `TypeError`, `ValueError`."""
    if not isinstance(name, str):
        raise TypeError(f"api {name!r}: it must be the name of a request, such as 'Produce'")
    plain = {_plain(api.name): api for api in APIS.values()}
    found = plain.get(_plain(name))
    if found is None:
        near = get_close_matches(_plain(name), plain, 1)
        hint = f"; did you mean {plain[near[0]].name}?" if near else ""
        raise ValueError(f"there is no API {name!r}{hint} docs/protocol.md lists them all")
    return found


def error_code(error: str | int) -> int:
    """Return the code of an error. Raises `TypeError`, `ValueError`."""
    if not isinstance(error, str | int):
        raise TypeError(f"error {error!r}: it must be the name or the code of an error of Kafka's")
    if isinstance(error, int):
        if error == NO_ERROR or not _INT16_MIN <= error <= _INT16_MAX:
            raise ValueError(f"error {error}: a code is from -1 to {_INT16_MAX}, and not 0")
        return error
    codes = {known.name: code for code, known in ERRORS.items()}
    found = codes.get(_EARLIER_NAMES.get(error, error))
    if found is None:
        near = get_close_matches(error.upper(), codes, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(
            f"error {error!r}: Kafka has no error of this name{hint}; a code is accepted too"
        )
    return found


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _check_text(name: str, value: str | None) -> None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} {value!r}: it must be a str, or None for any")


def _check_times(times: int | None) -> None:
    if times is not None and not isinstance(times, int):
        raise TypeError(f"times {times!r}: it must be a whole number, or None for all requests")
    if times is not None and times < 1:
        raise ValueError(f"times {times}: it must be 1 or more, or None for all requests")


def _check_seconds(seconds: float) -> None:
    check_number("seconds", seconds)
    if not (math.isfinite(seconds) and 0 < seconds <= DELAY_SECONDS_MAX):
        raise ValueError(f"seconds {seconds}: it must be above 0 and at most {DELAY_SECONDS_MAX:g}")


def _name_of(item: Any) -> str:
    """Return the name of an item of a request."""
    if isinstance(item, str):
        return item
    found = getattr(item, "name", None)
    return str(getattr(item, "resource_name", "") if found is None else found)


class _Refused(NamedTuple):
    """The error of a refused item."""

    code: int
    message: str


def _fail(code: int, topic: str | None, request: _InterceptedRequest) -> Any:
    message = "a test had the broker answer with this error"
    if request.api is METADATA:
        return then(request.handle(), partial(_mark_topics, code, topic))
    field_name = named_field(type(request.body)) if topic is not None else ""
    items = (getattr(request.body, field_name) or ()) if field_name else ()
    kept = [item for item in items if _name_of(item) != topic]
    if not kept or isinstance(getattr(request.body, "topic", None), str):
        return _failed(code, message, request)
    refused: Any = [(item, _Refused(code, message)) for item in items if _name_of(item) == topic]
    name, results = finish(refused_each(request.api.response, refused))

    def add(response: Any) -> Any:
        if response is not None:
            getattr(response, name).extend(results)
        return response

    smaller = replaced(request.body, **{field_name: kept})
    return then(request._replace(body=smaller).handle(), add)


def _failed(code: int, message: str, request: _InterceptedRequest) -> Any:
    """Return the response that fails everything in a request."""
    if request.api is PRODUCE and request.body.acks == NO_ANSWER:
        raise CloseConnection(f"a produce with acks=0 failed: {message}", code)
    response = refusal(request.api.response, request.body, code, message)
    if response is None:
        error: type[CodedError] = ERRORS.get(code, UnknownServerError)
        raise error(message)
    return response


def _mark_topics(code: int, topic: str | None, response: MetadataResponse) -> MetadataResponse:
    for each in response.topics:
        if topic is None or each.name == topic:
            each.error_code = code
            each.partitions = []
    return response


def _delay(seconds: float, request: _InterceptedRequest) -> PendingAnswer:
    failure: Exception | None = None
    outcome: Any = None
    try:
        outcome = request.handle()
    except Exception as error:
        failure = error
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def end() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.call_later(seconds, end)

    def make() -> Any:
        if failure is not None:
            raise failure
        return outcome

    alone = isinstance(outcome, PendingAnswer) and outcome.alone
    return PendingAnswer(ready, make, may_hurry=True, alone=alone, is_waiting=True)


def _drop(request: _InterceptedRequest) -> Any:
    raise CloseConnection("a test had the broker close the connection", UnknownServerError.code)


def _lose(request: _InterceptedRequest) -> Any:
    closing = CloseConnection("a test had the broker lose the answer", NO_ERROR)

    def close(_: Any) -> Any:
        raise closing

    try:
        outcome = request.handle()
    except Exception:
        raise closing from None
    return then(outcome, close)


def _throttle(seconds: float, request: _InterceptedRequest) -> Any:
    caller: Any = request.services.creations.context

    def apply(response: Any) -> Any:
        if hasattr(response, "throttle_time_ms"):
            response = replaced(response, throttle_time_ms=round(seconds * 1000))
        if caller.mute is not None:
            caller.mute(seconds)
        return response

    return then(request.handle(), apply)
