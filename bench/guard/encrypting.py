"""The same work over TLS and without, at two brokers in turns."""

import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ...testing.requests import create_topic, produce
from ..brokers import MIB, ONE_TURN_BYTES, broker, sets
from ..fetching import fetch_all, filled
from ..figure import Figure, rate_beside, times_in_turns
from ..producing import Filling
from ..raw_client import RawClient, check_end, encoded

_SET_BYTES: Final = 64 << 10
_FETCH_BYTES: Final = MIB
_LOG_BYTES: Final = 128 * MIB
_ROUNDS: Final = 7
_SECONDS: Final = 0.4
_EACH: Final = 100


def tls_cost(
    *,
    turn_bytes: int = ONE_TURN_BYTES,
    log_bytes: int = _LOG_BYTES,
    rounds: int = _ROUNDS,
    seconds: float = _SECONDS,
) -> Iterator[Figure]:
    """Produce, fetch, and one message at a time, each beside the same without TLS."""
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
            [partial(client.exchange, one) for client in clients], rounds=rounds, each=_EACH
        )
        for client in clients:
            check_end(client, "bench", rounds * _EACH)
        yield Figure("produce_one_tls", encrypted, "s", "plaintext", encrypted / plain)


def _clients(brokers: ExitStack) -> Iterator[RawClient]:
    """One of a broker without TLS, and one of another with it."""
    _, client = brokers.enter_context(broker())
    yield client
    pem = Path(brokers.enter_context(TemporaryDirectory(prefix="horolog-bench-"))) / "own.pem"
    make_certificate(pem)
    listening = "--listen", "tls://127.0.0.1:0", "--set", f"tls.cert={pem}"
    trusting = ssl.create_default_context(cafile=str(pem))
    _, client = brokers.enter_context(broker(*listening, tls=trusting))
    yield client


def make_certificate(pem: Path) -> None:
    """A certificate of its own root, with its key, in one file."""
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
