"""`make cluster`: runs an etcd and three brokers on this machine, with real input, so that one can
be killed and the failover watched."""

import asyncio
import shlex
import signal
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from ...client.administer.admin import Admin, ReplicaAdmin
from ...client.produce.producer import Producer
from ...clock import SystemClock
from ...protocol.api.cluster.describe_replicas import NOT_KNOWN, DescribeReplicasResponse
from ...protocol.errors import HorologError
from ...testing.etcd import EtcdProcess, etcd_program
from ..broker_options import HISTORY
from ..errors import CommandFailed, note
from ..output import shown_time
from .feed import History, ensure_topic, find_history, sample, send_all

PORTS: Final = (7070, 7071, 7170, 7171, 7270, 7271)
"""Two ports for each broker: for clients, and for its web page."""

NAME: Final = "demo"
TOPIC: Final = "demo-load"
LOOK_S: Final = 0.2
_CLOCK: Final = SystemClock()
WRITE_S: Final = 0.1
LONG_S: Final = 1.0
"""Gap between two answers, in seconds, from which a line is printed about it."""

MISSING: Final = (
    "make cluster needs etcd, which decides who leads, and there is no program `etcd` here.\n"
    "On Debian and Ubuntu: apt-get install etcd-server. Elsewhere: https://etcd.io/docs/latest/install"
)


class _Broker:
    def __init__(self, folder: Path, number: int, etcd: str, ports: Sequence[int]) -> None:
        self.number = number
        self.address, page = (f"127.0.0.1:{port}" for port in ports)
        self.log = folder / f"broker{number}.log"
        self.page = f"http://{page}"
        self.command = [
            *(sys.executable, "-m", "horolog", "serve", "--broker-id", str(number)),
            *("--data-dir", str(folder / f"broker{number}"), "--listen", self.address),
            *("--http-listen", page, "--kafka-listen", "off"),
            *("--etcd", etcd, "--cluster", NAME, "--create-cluster"),
        ]
        if number > 1:
            self.command.pop()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    @property
    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def check_runs(self) -> None:
        """Raise `CommandFailed`, with the last line of the broker's log, if the broker ended."""
        if self.ended:
            *_, last = self.log.read_text(errors="replace").splitlines() or ["it printed nothing"]
            raise CommandFailed(f"broker {self.number} did not start: {last}")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
            self.process.kill()


def _say(text: str) -> None:
    sys.stdout.write(f"{shown_time(_CLOCK.now_ms())}  {text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Run the brokers until Ctrl-C or SIGTERM; return the exit code."""
    parser = ArgumentParser(prog="python -m horolog.cli.demo.brokers")
    parser.add_argument(
        "--ports",
        type=int,
        nargs=len(PORTS),
        default=PORTS,
        metavar="PORT",
        help="of each broker that for clients and that of its page",
    )
    parser.add_argument(
        "--etcd-ports",
        type=int,
        nargs=2,
        metavar="PORT",
        help="of etcd that for clients and that for other members; by default free ones",
    )
    parser.add_argument(HISTORY.flag, metavar=HISTORY.metavar, type=Path, help=HISTORY.help)
    asked = parser.parse_args(arguments)
    if etcd_program() is None:
        sys.stderr.write(f"{MISSING}\n")
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _serve(asked.ports, asked.etcd_ports, find_history(asked.history))
    except (CommandFailed, OSError) as error:
        note(str(error))
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        pass  # by a signal
    return 0


def _serve(ports: Sequence[int], etcd_ports: Sequence[int] | None, history: History) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="horolog-cluster-")))
        etcd = EtcdProcess(folder / "etcd", ports=etcd_ports)
        stack.callback(etcd.close)
        try:
            etcd.start()
        except RuntimeError as error:
            raise CommandFailed(str(error)) from error
        _say(f"etcd is at {etcd.url}")
        pairs = zip(ports[::2], ports[1::2], strict=True)
        brokers = [_Broker(folder, n, etcd.url, pair) for n, pair in enumerate(pairs, 1)]
        for broker in brokers:
            stack.callback(broker.stop)
            broker.start()
        try:
            asyncio.run(_run(brokers, history))
        finally:  # A second signal must not keep the brokers from being stopped.
            signal.signal(signal.SIGTERM, signal.default_int_handler)


async def _run(brokers: list[_Broker], history: History) -> None:
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    watching = asyncio.create_task(_watch(brokers))
    addresses = ",".join(broker.address for broker in brokers)
    try:
        await _until_all_serve(brokers)
        async with (
            Admin(addresses, check_units=False) as admin,
            Producer(addresses, acks="all", idempotent=True, check_units=False) as producer,
        ):
            for topic in (TOPIC, history.topic):
                await ensure_topic(admin, topic, {})
            await send_all(producer, history.topic, history.records)
            _say(f"{history.topic} has {len(history.records):,} messages: {history.what}")
            _print_hints(brokers, addresses)
            await _write(producer)
    finally:
        watching.cancel()


def _print_hints(brokers: list[_Broker], addresses: str) -> None:
    program = shlex.join([sys.executable, "-m", "horolog"])
    lines = [
        f"a message with acks=all goes to {TOPIC} ten times a second. Now kill one, and watch:",
        *(
            f"    kill -9 {one.process.pid}   # broker {one.number}"
            for one in brokers
            if one.process
        ),
        "or let another one lead, or look:",
        f"    {program} cluster promote 2 --server {addresses}",
        f"    {program} cluster status --server {addresses}",
        "and start one again, in another terminal:",
        f"    {shlex.join(brokers[0].command)}",
        *(f"the page of broker {one.number}: {one.page}" for one in brokers),
        "Ctrl-C ends it all.",
    ]
    for line in lines:
        _say(line)


async def _write(producer: Producer) -> None:
    """Send messages for ever, and report gaps between answers."""
    answered_s = _CLOCK.monotonic()
    while True:
        try:
            await producer.send(TOPIC, sample())
        except (HorologError, OSError) as error:
            _say(f"a message was not stored: {error}")
        else:
            gap_s = _CLOCK.monotonic() - answered_s
            if gap_s > LONG_S:
                _say(f"writes are answered again, after {gap_s:.1f} s")
            answered_s = _CLOCK.monotonic()
        await asyncio.sleep(WRITE_S)


async def _until_all_serve(brokers: list[_Broker]) -> None:
    """Wait until all brokers answer, and one leads. Raises `CommandFailed` if one ends first."""
    while True:
        for broker in brokers:
            broker.check_runs()
        answers = await _answers(brokers)
        if len(answers) == len(brokers) and _state(answers) is not None:
            return
        await asyncio.sleep(LOOK_S)


async def _watch(brokers: list[_Broker]) -> None:
    """Print every change of the leader and the in-sync replicas, and every broker that ends."""
    known: tuple[int, int, tuple[int, ...]] | None = None
    gone: set[int] = set()
    while True:
        for broker in brokers:
            if broker.ended and broker.number not in gone:
                gone.add(broker.number)
                _say(f"broker {broker.number} is gone")
        state = _state(await _answers(brokers))
        if state is not None and state != known:
            known = state
            in_sync = ", ".join(map(str, state[2]))
            _say(f"broker {state[0]} leads, in epoch {state[1]}; in sync: {in_sync}")
        await asyncio.sleep(LOOK_S)


async def _answers(brokers: list[_Broker]) -> list[tuple[_Broker, DescribeReplicasResponse]]:
    """Return what each broker that answers knows of the cluster."""
    found = []
    for broker in brokers:
        with suppress(HorologError, OSError):
            async with ReplicaAdmin(broker.address, request_timeout_ms=1000) as admin:
                found.append((broker, await admin.describe()))
    return found


def _state(
    answers: list[tuple[_Broker, DescribeReplicasResponse]],
) -> tuple[int, int, tuple[int, ...]] | None:
    """Return leader, epoch and in-sync replicas, as the leader reports them; None without one."""
    found = [
        (status.leader, status.epoch, tuple(status.in_sync))
        for broker, status in answers
        if status.leader == broker.number != NOT_KNOWN
    ]
    return max(found, key=lambda one: one[1], default=None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
