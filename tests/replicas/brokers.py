"""Brokers in processes of their own that have the same data: started, killed, started again."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from horolog.client.administer.admin import ReplicaAdmin
from horolog.protocol.api.cluster.describe_replicas import DescribeReplicasResponse
from horolog.testing.ports import free_port
from horolog.testing.program import CommandResult, Program, ServerProcess, serving
from horolog.testing.waiting import wait_until

DEADLINE_S = 60.0
PATIENCE_MS = 300_000
"""`replica.lag.time.max.ms` where no test waits for it: a machine that stands still for a second
takes no follower out of sync."""
SHORT_MS = 2_000
"""For tests in which messages are written while a follower is gone."""
HAND_OVERS = 3


class Broker:
    """One of them. Its addresses stay the same."""

    def __init__(self, place: Path, broker_id: int, settings: dict[str, object]) -> None:
        self.broker_id = broker_id
        self.data_dir = place / f"broker{broker_id}"
        self.address = f"127.0.0.1:{free_port()}"
        self.kafka_address = ""
        """Empty: it has no Kafka listener."""
        self.settings = settings
        self._stack = ExitStack()
        self.server: ServerProcess | None = None

    def start(self, *how: str, follow: "Broker | None" = None) -> None:
        arguments = ["--listen", self.address, "--broker-id", str(self.broker_id), *how]
        if self.kafka_address:
            arguments += ["--kafka-listen", self.kafka_address]
        if follow is not None:
            arguments += ["--follow", follow.address]
        for name, value in self.settings.items():
            arguments += ["--set", f"{name}={value}"]
        self.server = self._stack.enter_context(serving(self.data_dir, *arguments))

    def kill(self) -> None:
        self.stop(9)

    def stop(self, number: int = 15) -> None:
        assert self.server is not None
        code = self.server.stop(number)
        assert number == 9 or code == 0, self.server.log.read_text()
        self._stack.close()
        self.server = None

    def close(self) -> None:
        self._stack.close()

    def forget(self) -> None:
        """Lose the disk."""
        shutil.rmtree(self.data_dir)

    @property
    def program(self) -> Program:
        return Program(self.address)

    def status(self) -> DescribeReplicasResponse:
        async def ask() -> DescribeReplicasResponse:
            async with ReplicaAdmin(self.address) as admin:
                return await admin.describe()

        return asyncio.run(ask())

    def told(self) -> str:
        return self.data_dir.with_name(f"{self.data_dir.name}.log").read_text()

    def files(self, kind: str = "log") -> dict[str, bytes]:
        """The content of the files of all segments, of one kind."""
        return {
            str(path.relative_to(self.data_dir)): path.read_bytes()
            for path in sorted(self.data_dir.glob(f"*-*/*.{kind}"))
        }


class Brokers:
    """A cluster in one folder."""

    def __init__(self, place: Path, count: int = 2, **settings: object) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        named = {
            "cluster.brokers": count,
            "replica.lag.time.max.ms": PATIENCE_MS,
            "retention.ms": -1,  # Messages of tests are old, and a slow test meets retention.
        } | named
        self.place = place
        self.all = {number: Broker(place, number, named) for number in range(1, count + 1)}

    def __getitem__(self, number: int) -> Broker:
        return self.all[number]

    def start(self) -> None:
        """The first leads, the others follow, and all are in sync."""
        self[1].start("--create-cluster")
        for number in list(self.all)[1:]:
            self[number].start(follow=self[1])
        self.in_sync(self[1])

    def in_sync(self, leader: Broker) -> DescribeReplicasResponse:
        """Wait until all have everything."""

        def found() -> DescribeReplicasResponse | None:
            status = leader.status()
            lags = {member.lag_messages for member in status.members}
            return status if status.in_sync == list(self.all) and lags == {0} else None

        return wait_until(found, within_s=DEADLINE_S, state=lambda: leader.told()[-2000:])

    def hand_over(self, leader: Broker, asked: Broker, *heir: str) -> None:
        """Have a broker carry out `promote` while the leader is there. A broker that stands still
        for a second meanwhile ends a handover; then it is tried again."""
        for _ in range(HAND_OVERS):
            self.in_sync(leader)
            result = asked.program("cluster", "promote", *heir)
            if result.code == 0:
                return
            assert "did not catch up" in refused(result), result
        raise AssertionError(f"{HAND_OVERS} handovers were given up: {result}")

    def close(self) -> None:
        for broker in self.all.values():
            broker.close()
        shutil.rmtree(self.place, ignore_errors=True)


@contextmanager
def brokers(place: Path, count: int = 2, **settings: object) -> Iterator[Brokers]:
    made = Brokers(place, count, **settings)
    try:
        yield made
    finally:
        made.close()


def refused(result: CommandResult) -> str:
    """What a command was refused with."""
    assert result.code == 1, result
    for line in result.out.splitlines():
        text: str = json.loads(line)["error"]
        return text
    return result.err
