"""Three brokers and an etcd in processes of their own; and who writes to them meanwhile."""

import asyncio
import json
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from horolog import Admin, HorologError, Producer
from horolog.client.administer.admin import ReplicaAdmin
from horolog.protocol.api.cluster.describe_replicas import DescribeReplicasResponse
from horolog.testing.etcd import EtcdProcess
from horolog.testing.ports import connected_by, free_port
from horolog.testing.program import Program, ServerProcess, serving
from horolog.testing.proxy import NetworkGate
from horolog.testing.waiting import wait_until

DEADLINE_S = 40.0
TOPIC = "t"
UNDER_WAY_MAX = 5
"""Messages that a writer has sent at a time, and has no answer for."""
CLIENTS = "clients"
"""In the place of a broker's name: whoever else connects."""


class Broker:
    """One of them, with gates between it and etcd, and between it and all others."""

    def __init__(
        self, place: Path, broker_id: int, etcd: EtcdProcess, settings: dict[str, object]
    ) -> None:
        self.broker_id = broker_id
        self.data_dir = place / f"broker{broker_id}"
        self.address = f"127.0.0.1:{free_port()}"
        self._stack = ExitStack()
        self._running = ExitStack()
        self.to_etcd = self._stack.enter_context(NetworkGate(etcd.url.rpartition("/")[2]))
        self.to_me = self._stack.enter_context(NetworkGate(self.address))
        """The way of followers and clients. It knows them by `name` and as `CLIENTS`."""
        self.kafka_address = ""
        """Empty: it has no Kafka listener."""
        self.settings = {"cluster.address": self.to_me.address, **settings}
        self.server: ServerProcess | None = None
        self.env: dict[str, str] = {}

    def start(self, *how: str) -> None:
        arguments = ["--listen", self.address, "--broker-id", str(self.broker_id)]
        arguments += ["--etcd", f"http://{self.to_etcd.address}", "--cluster", "test", *how]
        if self.kafka_address:
            arguments += ["--kafka-listen", self.kafka_address]
        for name, value in self.settings.items():
            arguments += ["--set", f"{name}={value}"]
        self.server = self._running.enter_context(serving(self.data_dir, *arguments, env=self.env))

    def stop(self, number: int = signal.SIGTERM) -> None:
        assert self.server is not None
        code = self.server.stop(number)
        assert number == signal.SIGKILL or code == 0, self.told()
        self._running.close()
        self.server = None

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def pause(self) -> None:
        assert self.server is not None
        os.kill(self.server.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.server is not None
        os.kill(self.server.process.pid, signal.SIGCONT)

    @property
    def name(self) -> str:
        return f"broker {self.broker_id}"

    @property
    def program(self) -> Program:
        return Program(self.address)

    def status(self) -> DescribeReplicasResponse:
        async def ask() -> DescribeReplicasResponse:
            async with ReplicaAdmin(self.address, request_timeout_ms=3000) as admin:
                return await admin.describe()

        return asyncio.run(ask())

    def told(self) -> str:
        return self.data_dir.with_name(f"{self.data_dir.name}.log").read_text()

    def close(self) -> None:
        self._running.close()
        self._stack.close()


class Cluster:
    """All of them."""

    def __init__(self, place: Path, etcd: EtcdProcess, count: int, **settings: object) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        named = {"replica.lag.time.max.ms": 2000, "cluster.lease.ms": 2000} | named
        self.etcd = etcd
        self.all = {n: Broker(place, n, etcd, named) for n in range(1, count + 1)}
        for broker in self.all.values():
            broker.to_me.name_of = self._name_of

    def _name_of(self, port: int) -> str:
        """Of the broker that connects from a port, or `CLIENTS`; empty if it does no more."""
        running = {one.name: one.server for one in self.all.values()}
        pids = {name: one.process.pid for name, one in running.items() if one is not None}
        found = connected_by(port, pids)
        return "" if found is None else found or CLIENTS

    def __getitem__(self, number: int) -> Broker:
        return self.all[number]

    def start(self) -> None:
        self[1].start("--create-cluster")
        for number in list(self.all)[1:]:
            self[number].start()
        self.in_sync()

    @property
    def addresses(self) -> str:
        return ",".join(broker.address for broker in self.all.values())

    @property
    def gates(self) -> str:
        """The addresses through which each can be cut off."""
        return ",".join(broker.to_me.address for broker in self.all.values())

    def others(self, broker: Broker) -> list[Broker]:
        return [one for one in self.all.values() if one is not broker]

    def mend(self) -> None:
        """Open all ways."""
        for broker in self.all.values():
            broker.to_me.open()
            broker.to_etcd.open()

    @property
    def program(self) -> Program:
        return Program(self.addresses)

    def leader(self, *, other_than: int = 0) -> Broker:
        """Wait until one leads."""

        def found() -> Broker | None:
            for number, broker in self.all.items():
                if number == other_than or broker.server is None:
                    continue
                try:
                    if broker.status().leader == number:
                        return broker
                except (HorologError, OSError):
                    pass
            return None

        broker: Broker = self.eventually(found)
        return broker

    def in_sync(self, *ids: int) -> Broker:
        """Wait until these, or all, are in sync and have everything; who leads."""

        def found() -> Broker | None:
            leader = self.leader()
            status = leader.status()
            lags = {one.lag_messages for one in status.members if one.broker_id in status.in_sync}
            there = status.in_sync == sorted(ids or self.all) and lags == {0}
            return leader if there else None

        leader: Broker = self.eventually(found)
        return leader

    def eventually(self, condition: Callable[[], Any], within_s: float = DEADLINE_S) -> Any:
        def told() -> str:
            return "\n".join(f"{n}: {one.told()[-1500:]}" for n, one in self.all.items())

        return wait_until(condition, within_s=within_s, state=told)

    def stored(self) -> dict[tuple[int, int], str]:
        """All messages, by partition and offset."""
        out = self.program.ok("consume", TOPIC, "--from", "offset:0", "--json").objects
        return {(one["partition"], one["offset"]): one["value"] for one in out}

    def close(self) -> None:
        for broker in self.all.values():
            broker.close()


@contextmanager
def cluster(
    place: Path, etcd: EtcdProcess, count: int = 3, **settings: object
) -> Iterator[Cluster]:
    made = Cluster(place, etcd, count, **settings)
    try:
        yield made
    finally:
        made.close()


@dataclass
class Writer:
    """Sends numbers with `acks=all`, idempotently, and keeps which were answered, and where.

    What failed may be there too, at most once.
    """

    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 60_000
    gated: bool = False
    """Whether it reaches the brokers only where they can be cut off from it."""
    next_number: int = 0
    answered: dict[tuple[int, int], str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    async def during(self, cluster: Cluster, what: Callable[[], object], more: int = 30) -> None:
        """Write while something is done, and until so many more were answered after that."""
        until = asyncio.Event()
        addresses = cluster.gates if self.gated else cluster.addresses
        writing = asyncio.create_task(self._write(addresses, until))
        try:
            async with asyncio.timeout(90):
                await self.answers(more)
                await asyncio.to_thread(what)
                await self.answers(more)
        finally:
            until.set()
            await writing

    async def answers(self, more: int) -> None:
        """Wait until so many more were answered."""
        enough = len(self.answered) + more
        while len(self.answered) < enough:  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(0.01)

    async def _write(self, addresses: str, until: asyncio.Event) -> None:
        async with Producer(
            addresses,
            acks="all",
            idempotent=True,
            delivery_timeout_ms=self.delivery_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
        ) as producer:
            under_way: deque[asyncio.Task[None]] = deque()
            while not until.is_set():
                under_way.append(asyncio.create_task(self._send(producer)))
                if len(under_way) >= UNDER_WAY_MAX:
                    await under_way.popleft()
            await asyncio.gather(*under_way)

    async def _send(self, producer: Producer) -> None:
        number = self.next_number
        self.next_number += 1
        try:
            sent = await producer.send(TOPIC, str(number).encode(), partition=number % 2)
        except (HorologError, OSError) as error:
            self.failed.append(f"{number}: {error}")
            await asyncio.sleep(0.01)
        else:
            assert sent.offset is not None
            self.answered[number % 2, sent.offset] = str(number)

    def check(self, cluster: Cluster) -> None:
        """Nothing answered is lost, nothing is there twice, order is kept."""
        found = cluster.stored()
        lost = {k: v for k, v in self.answered.items() if found.get(k) != v}
        assert lost == {}, f"{len(lost)} lost: {sorted(lost.items())[:5]}; failed {self.failed[:5]}"
        for partition in (0, 1):
            values = [int(value) for (of, _), value in sorted(found.items()) if of == partition]
            assert len(values) == len(set(values)), "something is there twice"
            assert values == sorted(values), "the order has changed"


@dataclass
class Committer:
    """Commits positions that grow, and asks for them again.

    One that was not answered may be there or not; one that was, or that was read, is never less
    later.
    """

    known: int = 0
    """The largest that was answered, or read."""
    commits: int = 0
    went_back: list[tuple[int, int]] = field(default_factory=list)

    async def run(self, addresses: str, until: asyncio.Event) -> None:
        async with Admin(addresses, request_timeout_ms=1500) as admin:
            while not until.is_set():
                await self._step(admin)

    async def _step(self, admin: Admin) -> None:
        try:
            found = await admin.position("committer", TOPIC)
            offset = 0 if found is None else found.offset
            if offset < self.known:
                self.went_back.append((self.known, offset))
            self.known = max(self.known, offset)
            await admin.commit_position("committer", TOPIC, 0, self.known + 1)
        except (HorologError, OSError):
            await asyncio.sleep(0.05)
        else:
            self.known += 1
            self.commits += 1


def line(result: Any) -> Any:
    """The one object that a command printed."""
    return json.loads(result.out)
