"""How fast a start reads what an unclean stop left."""

import json
import time
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from ..testing.program import ServerProcess
from ..testing.requests import create_topic, produce
from .brokers import MIB, broker, data_folder, sets
from .figure import Figure
from .raw_client import check_end, encoded

_LOG_BYTES: Final = 512 * MIB
_ROUNDS: Final = 3
_CHECKPOINT: Final = "recovery-point-offset-checkpoint"


def recovery() -> Iterator[Figure]:
    """A killed broker's log of 512 MiB, of which no checkpoint says that it is safe."""
    with data_folder() as data:
        log_format = ("--set", "log.format=json")
        rates: list[float] = []
        with broker(*log_format, data=data) as (server, client):
            client.call(create_topic("bench", retention_ms=-1, segment_bytes=128 * MIB))
            some, count = sets(100, 64 << 10)
            times = _LOG_BYTES // len(some)
            client.pipeline(encoded(produce("bench", some, acks=1)), 1, times, 8)
            check_end(client, "bench", times * count)
        for _ in range(_ROUNDS):
            (data / _CHECKPOINT).unlink(missing_ok=True)
            with broker(*log_format, data=data) as (server, client):
                check_end(client, "bench", times * count)
                event = _recovered(server)
                server.log.unlink()
            rates.append(event["bytes"] / (event["ms"] / 1000))
        yield Figure("recovery", median(rates), "bytes/s")


def _recovered(server: ServerProcess) -> dict[str, Any]:
    """What the broker says of its recovery; it is written a moment after the ready line."""
    while True:
        for line in server.log.read_text().splitlines():
            event: dict[str, Any] = json.loads(line)
            if event.get("event") == "recovery_finished":
                return event
        time.sleep(0.01)
