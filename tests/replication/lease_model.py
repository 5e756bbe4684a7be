"""A small model of two brokers, their clocks and etcd, of which every state is visited.

etcd gives one lease, to one broker at a time, and counts it by its own clock. A request arrives at
any time, or never; so does its answer. The brokers' clocks run as much too slow or too fast as the
margin allows. All times are multiples of a power of two, so that sums of floats are exact.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from horolog.replication.lease import Lease

EVENTS_MAX: Final = 12

TTL_S, MARGIN = 8.0, 0.25
RATES: Final = ((1 - MARGIN, 1 - MARGIN), (1 - MARGIN, 1 + MARGIN), (1 + MARGIN, 1 + MARGIN))
"""Of the clocks of both brokers, to etcd's. Exchanged brokers are the same again."""
STEPS_S: Final = (TTL_S / 4, TTL_S / 2)

REQUESTS_MAX: Final = 2
"""Renewals of a broker that are under way: the answer to a later one may overtake."""


class Request(NamedTuple):
    renews: bool
    age_s: float
    """How long ago it was sent, by its broker's clock."""
    done: bool
    """Whether etcd did what it asks for, so that the answer is under way."""


class Broker(NamedTuple):
    left_s: float
    """For how long the lease may still be relied on, by the broker's clock; 0: it has none."""
    requests: tuple[Request, ...]


class State(NamedTuple):
    brokers: tuple[Broker, Broker]
    holder: int
    """The broker that etcd has given the lease; -1: none."""
    left_s: float
    """For how long, by etcd's clock. At 0 the lease may end, which takes etcd any time."""


BEGIN: Final = State((Broker(0.0, ()), Broker(0.0, ())), -1, 0.0)


class LeaseModel:
    """Every order of up to `EVENTS_MAX` events, with one class of leases and one pair of clocks."""

    def __init__(self, lease_class: type[Lease], rates: tuple[float, float]) -> None:
        self._lease_class = lease_class
        self._rates = rates
        self.holders: set[int] = set()
        """Brokers that had the lease in some state."""
        self.states = 0

    def violation(self) -> State | None:
        """The first state in which a broker relies on a lease that etcd has given the other one."""
        seen, reached = {BEGIN}, {BEGIN}
        for _ in range(EVENTS_MAX):
            reached = {after for state in reached for after in self._after(state)} - seen
            seen |= reached
            self.states = len(seen)
            for state in reached:
                self.holders.add(state.holder)
                if state.holder >= 0 and state.brokers[1 - state.holder].left_s > 0:
                    return state
        return None

    def _after(self, state: State) -> Iterator[State]:
        yield from (self._later(state, step_s) for step_s in STEPS_S)
        if state.holder >= 0 and not state.left_s:
            yield state._replace(holder=-1)
        for number, broker in enumerate(state.brokers):
            asked = _asked(broker)
            if asked is not None:
                yield _with(state, number, asked)
            for request in broker.requests:
                if request.done:
                    yield _with(state, number, self._answered(broker, request))
                else:
                    yield _served(state, number, request)

    def _later(self, state: State, step_s: float) -> State:
        first, second = (
            Broker(
                max(broker.left_s - step_s * rate, 0.0),
                tuple(
                    one._replace(age_s=min(one.age_s + step_s * rate, TTL_S))
                    for one in broker.requests
                ),
            )
            for broker, rate in zip(state.brokers, self._rates, strict=True)
        )
        return State((first, second), state.holder, max(state.left_s - step_s, 0.0))

    def _answered(self, broker: Broker, request: Request) -> Broker:
        """The answer to a request arrives. It is 0 by the broker's clock now."""
        others = tuple(one for one in broker.requests if one is not request)
        if request.renews:
            lease = self._lease_class(1, broker.left_s - TTL_S * (1 - MARGIN), TTL_S, MARGIN)
            lease.renewed(0.0, -request.age_s, TTL_S)
        else:
            lease = self._lease_class(1, -request.age_s, TTL_S, MARGIN)
        return Broker(max(lease._until_s, 0.0) if lease.holds(0.0) else 0.0, others)


def _asked(broker: Broker) -> Broker | None:
    """The broker asks: for the lease again, if it has it; else for a new one."""
    if broker.left_s > 0:
        new = Request(renews=True, age_s=0.0, done=False)
        return broker._replace(requests=(*broker.requests, new)) if _has_room(broker) else None
    if any(not one.renews for one in broker.requests):
        return None
    # What is answered of the lease before counts no more: it is another one.
    return broker._replace(requests=(Request(renews=False, age_s=0.0, done=False),))


def _has_room(broker: Broker) -> bool:
    return len(broker.requests) < REQUESTS_MAX


def _served(state: State, number: int, request: Request) -> State:
    """A request arrives at etcd; one that it cannot do is not answered."""
    broker = state.brokers[number]
    can = state.holder == (number if request.renews else -1)
    answer = (request._replace(done=True),) if can else ()
    others = tuple(one for one in broker.requests if one is not request)
    after = _with(state, number, broker._replace(requests=tuple(sorted(others + answer))))
    return after._replace(holder=number, left_s=TTL_S) if can else after


def _with(state: State, number: int, broker: Broker) -> State:
    first, second = state.brokers
    return state._replace(brokers=(broker, second) if number == 0 else (first, broker))
