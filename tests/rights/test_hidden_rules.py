"""The rule by which messages left a topic may reveal settings and users. The broker hides both from
clients that may not describe its configs, and answers everything else."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import horolog
from horolog import blocking
from horolog.protocol.api.log.describe_removals import DescribeRemovalsRequest
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.security.acl_terms import Operation as Op
from horolog.server.broker import Broker
from horolog.server.security.acls import Acl
from horolog.storage.directory.journal import Cause, Removal
from horolog.testing.broker import BrokerThread
from horolog.testing.requests import create_topic
from horolog.tests.in_process import run_in_process

from .conftest import CLUSTER, TOPIC, Strict, connection, only, rule

T0 = 1_479_144_272_000
RULES = {
    Cause.RETENTION: "retention.ms=123456",
    Cause.TRIM: "User:root",
    Cause.DELETION: "User:root",
    Cause.CLEANING: "cleanup.policy=compact",
}
CUT = "to follow its leader"
EVERYTHING = (rule((Op.ALL, TOPIC)), rule((Op.ALL, CLUSTER)))


async def record(broker: Broker, topic: str) -> None:
    topic_id = broker.directory.topics()[topic].topic_id
    removals = [
        Removal(cause, text, topic, topic_id, number, 0, 2, 2, T0, T0 + 1, T0 + 2, T0 + 3 + number)
        for number, (cause, text) in enumerate(RULES.items())
    ]
    await broker.services.metadata.record_removed(removals)
    cut = Removal(str(Cause.TRUNCATION), CUT, topic, topic_id, 0, 9, 10, 1, -1, T0, T0, T0 + 99)
    broker.directory.truncations.add(cut)


@pytest.mark.parametrize("name", ["t", "t..20161114T17Z..1h"])
async def test_the_rule_needs_the_right_to_describe_configs(strict: Strict, name: str) -> None:
    async with strict() as broker, connection(broker, native) as client:
        only(broker, *EVERYTHING)
        await client.call(create_topic("t"))
        await record(broker, "t")
        request = DescribeRemovalsRequest(topic=name, partitions=[0])
        whole = await client.call(request)
        assert [each.rule for each in whole.removals] == [*RULES.values(), CUT]
        only(broker, rule((Op.DESCRIBE, TOPIC)), rule((Op.DESCRIBE_CONFIGS, TOPIC), "other"))
        hidden = await client.call(request)
        assert [each.rule for each in hidden.removals] == [*[""] * len(RULES), CUT]
        for each in whole.removals[: len(RULES)]:
            each.rule = ""
        assert hidden == whole
        only(broker, rule((Op.DESCRIBE, TOPIC)), rule((Op.ALTER_CONFIGS, TOPIC), "t"))
        shown = await client.call(request)
        assert [each.rule for each in shown.removals] == [*RULES.values(), CUT]
        # A deleted topic keeps its journal, and the same right on its name.
        only(broker, rule((Op.DESCRIBE, TOPIC)))
        await broker.services.metadata.record_removed(
            [Removal(Cause.DELETION, "User:root", "gone", "x" * 22, 0, *(0, 2, 2, 1, 1, 1, 1))]
        )
        (deleted,) = (await client.call(DescribeRemovalsRequest(topic="gone"))).removals
        assert (deleted.rule, deleted.messages) == ("", 2)


def test_tools_say_that_it_is_hidden(tmp_path: Path) -> None:
    with BrokerThread(
        tmp_path / "data", {"authorization": "on", "http.listen": "127.0.0.1:0"}
    ) as broker:

        def allow(*rules: Acl) -> None:
            async def do(running: Broker) -> None:
                only(running, *rules)

            broker.in_loop(do)

        def run(*arguments: str) -> Any:
            result = run_in_process([*arguments], b"", {"HOROLOG_SERVER": broker.address})
            assert result.code == 0, result
            return result

        allow(*EVERYTHING)
        asyncio.run(fill(broker.address))
        allow(rule((Op.READ, TOPIC)))
        (trimmed, _) = run("explain", "gone", "t").out.splitlines()
        assert "(2 messages, first time 2016-11-14T17:24:32.000Z, largest time " in trimmed
        hidden = (
            "were trimmed by a user (hidden: needs the right DescribeConfigs on the topic), at "
        )
        assert hidden in trimmed
        (entry,) = run("explain", "gone", "t", "--json").objects
        assert (entry["rule"], entry["messages"], entry["cause"]) == (None, 2, "trim")
        read = run("consume", "t", "--from", str(T0), "--stats")
        assert hidden in run("consume", "t", "--from", str(T0)).err
        (stats,) = json.loads(read.err.splitlines()[-1])["removed"]
        assert (stats["rule"], stats["messages"]) == (None, 2)
        with blocking.Consumer(broker.address) as consumer:
            window = consumer.window("t", T0, None)
            assert sum(1 for _ in window) == 1
            assert [(each.rule, each.messages) for each in window.removed] == [("", 2)]
        allow(rule((Op.READ, TOPIC)), rule((Op.DESCRIBE_CONFIGS, TOPIC)))
        assert "were trimmed by User:ANONYMOUS, at " in run("explain", "gone", "t").out


async def fill(address: str) -> None:
    async with horolog.Admin(address) as admin, horolog.Producer(address) as producer:
        await admin.create_topic("t", settings={"retention.ms": -1})
        for number in range(3):
            await producer.send("t", b"v", timestamp_ms=T0 + number)
        await admin.delete_records("t", 0, 2)
