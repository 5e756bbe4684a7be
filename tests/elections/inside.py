"""Brokers in the event loop of a test that etcd decides for."""

import asyncio
from collections.abc import Callable
from typing import Any

from horolog.server.broker import Broker
from horolog.testing.etcd import EtcdProcess
from horolog.testing.ports import free_ports


class Settings:
    """Of brokers of one cluster, by their ids."""

    def __init__(self, etcd: EtcdProcess, count: int) -> None:
        self._etcd = etcd
        self._addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]

    @property
    def addresses(self) -> str:
        return ",".join(self._addresses)

    def of(self, broker_id: int, **more: object) -> dict[str, Any]:
        """Those of one of them; the first one makes the cluster."""
        return {
            "broker_id": broker_id,
            "listen": self._addresses[broker_id - 1],
            "cluster_etcd": self._etcd.url,
            "cluster_name": "x",
            "cluster_create": broker_id == 1,
            "cluster_lease_ms": 2000,
            "replica_lag_time_max_ms": 2000,
            **more,
        }


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is decided has no event
            await asyncio.sleep(0.02)


def leads(broker: Broker) -> bool:
    return broker.services.replication.leads


def in_sync(broker: Broker) -> bool:
    """Whether a follower is, and knows it."""
    return not broker.services.replication.not_ready()
