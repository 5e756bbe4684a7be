"""The same work with authorization and without, at two brokers in turns."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Final, TypeVar

from ...protocol.api.log.produce import PRODUCE
from ...protocol.api.security.acl_terms import Operation, PatternType, Permission, ResourceType
from ...server.network.endpoint import Caller
from ...server.rights.guard import Guard
from ...server.security.acl_store import Acls
from ...server.security.acls import Acl
from ...storage.files import SystemFiles
from ...storage.metadata.offline_metadata import offline_metadata
from ...testing.broker import running_broker
from ...testing.events import RecordedEvents
from ...testing.requests import create_topic, produce
from ...testing.wire import wire
from ..brokers import ONE_TURN_BYTES, broker, data_folder, sets
from ..figure import Figure, rate_beside, times_in_turns
from ..producing import Filling
from ..raw_client import RawClient, check_end, encoded

T = TypeVar("T")

RULES: Final = 100
"""As a broker of some teams has them; those that hold for the producer are among the last."""

_TEAMS: Final = 8
_IN_A_TEAM: Final = 4
_GONE: Final = 22
_PLACES: Final = (False, True, True, False)
"""Which brokers have rules. Two processes that do the same differ by more than what is measured,
and by the order in which they start."""
_PRODUCER: Final = "User:ANONYMOUS"
_SET_BYTES: Final = 64 << 10
_ROUNDS: Final = 61
_SECONDS: Final = 0.08
_EACH: Final = 40
_DECISIONS: Final = 1_000


def acl_cost(
    *,
    turn_bytes: int = ONE_TURN_BYTES,
    rounds: int = _ROUNDS,
    seconds: float = _SECONDS,
) -> Iterator[Figure]:
    """Produce, and one message at a time, each beside the same with `authorization=off`; and the
    decisions alone, as a share of the time of a produce."""
    data, count = sets(100, _SET_BYTES)
    with ExitStack() as brokers:
        clients = [brokers.enter_context(_client(on=on)) for on in _PLACES]
        fillings = [Filling(client, "produced", data, count) for client in clients]
        for filling in fillings:
            filling.send(turn_bytes // len(data) + 1)
        works = _by_side([each.send for each in fillings])
        produced = rate_beside("produce_acls", "msg/s", "acls_off", works, rounds, seconds)
        yield produced
        for filling in fillings:
            filling.check()
        one = encoded(produce("bench", sets(100, 1)[0], acks=1))
        for client in clients:
            client.call(create_topic("bench"))
        asked = _by_side([partial(client.exchange, one) for client in clients])
        off, on = times_in_turns(asked, rounds=rounds, each=_EACH)
        for client in clients:
            check_end(client, "bench", rounds * _EACH * len(asked) // len(clients))
        yield Figure("produce_one_acls", on, "s", "acls_off", on / off)
    with data_folder() as folder:
        deciding = asyncio.run(_decision_seconds(folder, produce("produced", data, acks=1)))
    share = deciding / (count / produced.value)
    yield Figure("acl_check_cost", share, "share", "produce_acls")


def _by_side(works: Sequence[Callable[[], T]]) -> list[Callable[[], T]]:
    """Of the works at each broker: one for those without rules, one for those with."""
    return [
        _in_turns([work for work, on in zip(works, _PLACES, strict=True) if on is side])
        for side in (False, True)
    ]


def _in_turns(works: Sequence[Callable[[], T]]) -> Callable[[], T]:
    """A work that is one of these, then the next."""
    turns = cycle(works)
    return lambda: next(turns)()


@contextmanager
def _client(*, on: bool) -> Iterator[RawClient]:
    """One of a broker of its own."""
    with data_folder() as data:
        if on:
            add_rules(data)
        with broker("--set", f"authorization={'on' if on else 'off'}", data=data) as (_, client):
            yield client


async def _decision_seconds(data: Path, request: object) -> float:
    """What the decision about a request takes that comes alone, in this process."""
    add_rules(data)
    async with running_broker(data, authorization="on", http_listen="off") as running:
        async with wire(running.addresses.native) as client:
            await client.call(create_topic("produced"))
        guard = Guard(running.services, {})
        caller = Caller(("127.0.0.1", 0), "127.0.0.1")

        def decide() -> None:
            for _ in range(_DECISIONS):
                if not guard.allows(PRODUCE.key, caller)(request):
                    raise RuntimeError("the request is not on the short way")

        (taken,) = times_in_turns([decide], rounds=_ROUNDS, each=1)
        return taken / _DECISIONS


def add_rules(data: Path) -> None:
    """What teams may do with topics and groups of their own, who may do nothing any more, and what
    the producer of these figures may do."""
    found = []
    for team in range(_TEAMS):
        members = [f"User:member-{team}-{number}" for number in range(_IN_A_TEAM)]
        for member in members:
            found += [
                _rule(member, each, ResourceType.TOPIC, f"team-{team}.")
                for each in (Operation.READ, Operation.WRITE)
            ]
        found.append(_rule(members[0], Operation.READ, ResourceType.GROUP, f"team-{team}."))
    found.append(_rule("User:*", Operation.DESCRIBE, ResourceType.TOPIC, "*"))
    found += [
        _rule(f"User:gone-{number}", Operation.ALL, ResourceType.TOPIC, "*", Permission.DENY)
        for number in range(_GONE)
    ]
    found += [
        _rule(_PRODUCER, each, ResourceType.TOPIC, "*")
        for each in (Operation.WRITE, Operation.CREATE, Operation.READ)
    ]
    found += [
        _rule(_PRODUCER, each, ResourceType.TOPIC, "team-", Permission.DENY)
        for each in (Operation.DELETE, Operation.ALTER)
    ]
    assert len(found) == RULES
    data.mkdir()
    with offline_metadata(SystemFiles(), data, RecordedEvents(), advice="stop it") as metadata:
        metadata.change_access(lambda: Acls({}).plan_adding(found))


def _rule(
    principal: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    permission: Permission = Permission.ALLOW,
) -> Acl:
    pattern = PatternType.LITERAL if name == "*" else PatternType.PREFIXED
    return Acl(kind, pattern, name, principal, "*", operation, permission)
