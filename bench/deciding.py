"""The same work with authorization and without, at two brokers in turns."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Final, TypeVar

from ..protocol.api.security.acl_terms import Operation, PatternType, Permission, ResourceType
from ..server.security.acl_store import ACLS_FILE_MODE, Acls
from ..server.security.acls import Acl
from ..storage.files import SystemFiles
from ..testing.requests import create_topic, produce
from .brokers import ONE_TURN_BYTES, broker, data_folder, sets
from .figure import Figure, rate_beside, times_in_turns
from .producing import Filling
from .raw_client import RawClient, check_end, encoded

T = TypeVar("T")

RULES: Final = 100
"""As a broker of some teams has them; those that hold for the producer are among the last."""

_TEAMS: Final = 8
_IN_A_TEAM: Final = 4
_GONE: Final = 22
_PAIRS: Final = 2
_PRODUCER: Final = "User:ANONYMOUS"
_SET_BYTES: Final = 64 << 10
_ROUNDS: Final = 21
_SECONDS: Final = 0.2
_EACH: Final = 100


def acl_cost(
    *,
    turn_bytes: int = ONE_TURN_BYTES,
    rounds: int = _ROUNDS,
    seconds: float = _SECONDS,
) -> Iterator[Figure]:
    """Produce, and one message at a time, each beside the same with `authorization=off`."""
    data, count = sets(100, _SET_BYTES)
    with ExitStack() as brokers:
        clients = [*_clients(brokers)]
        fillings = [Filling(client, "produced", data, count) for client in clients]
        for filling in fillings:
            filling.send(turn_bytes // len(data) + 1)
        works = [_in_turns([each.send for each in fillings[side::2]]) for side in (0, 1)]
        yield rate_beside("produce_acls", "msg/s", "acls_off", works, rounds, seconds)
        for filling in fillings:
            filling.check()
        one = encoded(produce("bench", sets(100, 1)[0], acks=1))
        for client in clients:
            client.call(create_topic("bench"))
        asked = [partial(client.exchange, one) for client in clients]
        off, on = times_in_turns(
            [_in_turns(asked[side::2]) for side in (0, 1)], rounds=rounds, each=_EACH
        )
        for client in clients:
            check_end(client, "bench", rounds * _EACH // _PAIRS)
        yield Figure("produce_one_acls", on, "s", "acls_off", on / off)


def _in_turns(works: Sequence[Callable[[], T]]) -> Callable[[], T]:
    """A work that is one of these, then the next."""
    turns = cycle(works)
    return lambda: next(turns)()


def _clients(brokers: ExitStack) -> Iterator[RawClient]:
    """Pairs: one of a broker that looks at no rules, and one of another with rules.

    Two processes that do the same differ by more than what is measured, so there are several.
    """
    for _ in range(_PAIRS):
        _, client = brokers.enter_context(broker())
        yield client
        data = brokers.enter_context(data_folder())
        add_rules(data)
        _, client = brokers.enter_context(broker("--set", "authorization=on", data=data))
        yield client


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
    Acls(SystemFiles(ACLS_FILE_MODE), data).add(found)


def _rule(
    principal: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    permission: Permission = Permission.ALLOW,
) -> Acl:
    pattern = PatternType.LITERAL if name == "*" else PatternType.PREFIXED
    return Acl(kind, pattern, name, principal, "*", operation, permission)
