"""A client at its quota: how near to it, and what that costs another client.

`python -m horolog.bench.guard.holding HOST:PORT` sends what it may until it is killed, as the
client `held`; it prints `running` first.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

from ...protocol.api.log.produce import PRODUCE
from ...protocol.api.native import frames as native
from ...protocol.api.security.client_quotas import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaEntityPart,
    QuotaOp,
)
from ...testing.requests import create_topic, list_offsets, produce, result
from ..brokers import MIB, RETENTION_LIMIT, broker, sets
from ..figure import Figure
from ..raw_client import RawClient, encoded, newest

HELD: Final = "held"
_LATEST: Final = -1
_LIMIT: Final = 8 * MIB
_WINDOWS: Final = 3
_SECONDS: Final = 2.0 * _WINDOWS
_REQUESTS: Final = 500


def quota_held(*, seconds: float = _SECONDS, requests: int = _REQUESTS) -> Iterator[Figure]:
    """What a client gets stored a second that sends as fast as it may, over its quota; and the
    median of another client's requests beside it, over that alone."""
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
    """Median seconds of a request; a pause between them lets the other client in."""
    found = []
    for _ in range(requests):
        time.sleep(0.001)
        began = time.perf_counter()
        client.exchange(request)
        found.append(time.perf_counter() - began)
    return median(found)


@contextmanager
def _sending(address: str) -> Iterator[None]:
    command = [sys.executable, "-m", "horolog.bench.guard.holding", address]
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


def _send(address: str) -> None:
    client = RawClient(address)
    body = produce(HELD, sets(100, 64 << 10)[0], acks=1)
    request = native.encode_request(PRODUCE, newest(PRODUCE, native), 1, HELD, body)
    client.exchange(request)
    print("running", flush=True)
    while True:
        client.exchange(request)


if __name__ == "__main__":
    _send(sys.argv[1])
