"""Measures the cost of a guarded broker: the same work with and without authorization, and with and
without TLS, at two brokers in turns. Measures a client at its quota too: how close to the quota its
rate is, and how much it slows another client.

`python -m horolog.bench.guard.costs HOST:PORT` is the client with the quota: it sends as fast as
the broker lets it until it is killed. It prints `running` first.
"""

import asyncio
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from ...protocol.api.log.produce import PRODUCE
from ...protocol.api.native import frames as native
from ...protocol.api.security.acl_terms import Operation, PatternType, Permission, ResourceType
from ...protocol.api.security.client_quotas import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaEntityPart,
    QuotaOp,
)
from ...server.network.endpoint import Caller
from ...server.rights import Guard
from ...server.security.acl_store import Acls
from ...server.security.acls import Acl
from ...storage.files import SystemFiles
from ...storage.metadata.local_metadata import offline_metadata
from ...testing.broker import running_broker
from ...testing.logs import RecordedEvents
from ...testing.requests import create_topic, list_offsets, produce, result
from ...testing.wire import wire
from ..brokers import MIB, ONE_TURN_BYTES, RETENTION_LIMIT, broker, data_folder, sets
from ..figure import Figure, rate_beside, times_in_turns
from ..raw_client import RawClient, check_end, encoded, newest
from ..requests import Filling, fetch_all, filled

HELD: Final = "held"
_LATEST: Final = -1
_LIMIT: Final = 8 * MIB
_WINDOWS: Final = 3
_HELD_SECONDS: Final = 2.0 * _WINDOWS
_REQUESTS: Final = 500

_FETCH_BYTES: Final = MIB
_LOG_BYTES: Final = 128 * MIB
_TLS_ROUNDS: Final = 7
_TLS_SECONDS: Final = 0.4
_TLS_EACH: Final = 100
T = TypeVar("T")

RULES: Final = 100
"""Number of rules, as at a broker of several teams. The producer's rules are among the last."""
_TEAMS: Final = 8
_IN_A_TEAM: Final = 4
_GONE: Final = 22

_PLACES: Final = (False, True, True, False)
"""Which brokers have rules. There are two of each kind, because two processes with the same work
can differ more than the measured cost, also by the order in which they start."""
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
    """Yield produce rates and the median of one message at a time, each beside the same with
    `authorization=off`; and the time of the decisions alone, as a share of the time of a produce
    request."""
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
    """Return two works from the works at each broker: without rules, and with rules."""
    return [
        _in_turns([work for work, on in zip(works, _PLACES, strict=True) if on is side])
        for side in (False, True)
    ]


def _in_turns(works: Sequence[Callable[[], T]]) -> Callable[[], T]:
    """Return a work that calls these works in turn."""
    turns = cycle(works)
    return lambda: next(turns)()


@contextmanager
def _client(*, on: bool) -> Iterator[RawClient]:
    """Start a broker; return a client of it."""
    with data_folder() as data:
        if on:
            add_rules(data)
        with broker("--set", f"authorization={'on' if on else 'off'}", data=data) as (_, client):
            yield client


async def _decision_seconds(data: Path, request: object) -> float:
    """Measure, in this process, the decision about a request that arrives alone."""
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
    """Add rules for topics and groups of teams, rules that deny removed users everything, and rules
    for the producer of these figures."""
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


def tls_cost(
    *,
    turn_bytes: int = ONE_TURN_BYTES,
    log_bytes: int = _LOG_BYTES,
    rounds: int = _TLS_ROUNDS,
    seconds: float = _TLS_SECONDS,
) -> Iterator[Figure]:
    """Yield produce and fetch rates, and the median of one message at a time, each beside the same
    without TLS."""
    data, count = sets(100, _SET_BYTES)
    with ExitStack() as brokers:
        clients = [*_clients(brokers)]
        fillings = [Filling(client, "produced", data, count) for client in clients]
        for filling in fillings:
            filling.send(turn_bytes // len(data) + 1)
        works = [each.send for each in fillings]
        yield rate_beside("produce_tls", "msg/s", "plaintext", works, rounds, seconds)
        for filling in fillings:
            filling.check()
    with ExitStack() as brokers:
        fetches = [
            partial(fetch_all, client, filled(client, _FETCH_BYTES, log_bytes), 4)
            for client in _clients(brokers)
        ]
        yield rate_beside("fetch_1MiB_tls", "bytes/s", "plaintext", fetches, rounds, seconds)
    with ExitStack() as brokers:
        clients = [*_clients(brokers)]
        one = encoded(produce("bench", sets(100, 1)[0], acks=1))
        for client in clients:
            client.call(create_topic("bench"))
        plain, encrypted = times_in_turns(
            [partial(client.exchange, one) for client in clients], rounds=rounds, each=_TLS_EACH
        )
        for client in clients:
            check_end(client, "bench", rounds * _TLS_EACH)
        yield Figure("produce_one_tls", encrypted, "s", "plaintext", encrypted / plain)


def _clients(brokers: ExitStack) -> Iterator[RawClient]:
    """Start a broker without TLS and one with TLS; return a client of each."""
    _, client = brokers.enter_context(broker())
    yield client
    pem = Path(brokers.enter_context(TemporaryDirectory(prefix="horolog-bench-"))) / "own.pem"
    make_certificate(pem)
    listening = "--listen", "tls://127.0.0.1:0", "--set", f"tls.cert={pem}"
    trusting = ssl.create_default_context(cafile=str(pem))
    _, client = brokers.enter_context(broker(*listening, tls=trusting))
    yield client


def make_certificate(pem: Path) -> None:
    """Write a self-signed certificate and its key to one file."""
    made = pem.with_suffix(".crt")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=bench"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", pem, "-out", made),
        ],
        check=True,
        capture_output=True,
    )
    pem.write_bytes(pem.read_bytes() + made.read_bytes())


def quota_held(*, seconds: float = _HELD_SECONDS, requests: int = _REQUESTS) -> Iterator[Figure]:
    """Yield the rate of a client that sends as fast as it can, divided by its quota; and the median
    request of another client at the same time, divided by its median alone."""
    with broker("--set", f"quota.window.num={_WINDOWS}") as (server, client):
        for topic in (HELD, "bench"):
            client.call(create_topic(topic, **RETENTION_LIMIT))
        _set_quota(client)
        request = encoded(produce("bench", sets(100, 16 << 10)[0], acks=1))
        _times(client, request, requests)
        alone = _times(client, request, requests)
        data, count = sets(100, 64 << 10)
        with _sending(server.native):
            time.sleep(_WINDOWS)  # what it may send at once is sent, and out of the windows
            beside = _times(client, request, requests)
            began, begin = time.perf_counter(), _end(client)
            time.sleep(seconds)
            sent = (_end(client) - begin) / count * len(data)
            rate = sent / (time.perf_counter() - began)
        yield Figure("quota_held", rate, "bytes/s", "quota", rate / _LIMIT)
        yield Figure("quota_beside", beside, "s", "alone", beside / alone)


def _set_quota(client: RawClient) -> None:
    entity = [QuotaEntityPart(entity_type="client-id", entity_name=HELD)]
    ops = [QuotaOp(key="producer_byte_rate", value=float(_LIMIT), remove=False)]
    entries = [QuotaAlteration(entity=entity, ops=ops)]
    answer = client.call(AlterClientQuotasRequest(entries=entries, validate_only=False))
    if answer.entries[0].error_code:
        raise RuntimeError(answer.entries[0].error_message)


def _end(client: RawClient) -> int:
    return int(result(client.call(list_offsets(HELD, (0, _LATEST)))).offset)


def _times(client: RawClient, request: bytes, requests: int) -> float:
    """Return the median seconds of a request. Pauses between the requests let the other client
    run."""
    found = []
    for _ in range(requests):
        time.sleep(0.001)
        began = time.perf_counter()
        client.exchange(request)
        found.append(time.perf_counter() - began)
    return median(found)


@contextmanager
def _sending(address: str) -> Iterator[None]:
    command = [sys.executable, "-m", "horolog.bench.guard.costs", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "running\n":
                raise RuntimeError("the client at its quota does not run")
            yield
            if process.poll() is not None:
                raise RuntimeError("the client at its quota ended early")
        finally:
            process.kill()


def _send_held(address: str) -> None:
    client = RawClient(address)
    body = produce(HELD, sets(100, 64 << 10)[0], acks=1)
    request = native.encode_request(PRODUCE, newest(PRODUCE, native), 1, HELD, body)
    client.exchange(request)
    print("running", flush=True)
    while True:
        client.exchange(request)


if __name__ == "__main__":
    _send_held(sys.argv[1])
