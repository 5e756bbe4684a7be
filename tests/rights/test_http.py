"""The page goes by the same rights."""

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from horolog.protocol.api.native import frames as native
from horolog.protocol.api.security.acl_terms import Operation as Op
from horolog.protocol.api.security.acl_terms import Permission
from horolog.server.broker import Broker
from horolog.server.page.access import ASKED_FOR
from horolog.server.page.routes import ANSWERS
from horolog.server.web.server import HttpState
from horolog.testing.broker import running_broker
from horolog.testing.requests import create_topic, message_set, produce
from horolog.testing.waiting import until

from .conftest import CLUSTER, GROUP, TOPIC, connection, only, rule

CONTENT = ("messages", "find", "window", "download")
DETAILS = ("segments", "histogram", "consumers")


class Page:
    def __init__(self, broker: Broker, session: aiohttp.ClientSession) -> None:
        self.broker = broker
        self._session = session

    async def get(self, path: str) -> tuple[int, Any]:
        answer = await self._session.get(f"http://{self.broker.addresses.http}{path}")
        text = await answer.text()
        return answer.status, json.loads(text) if text.startswith("{") else text

    async def ask(self, name: str, topic: str) -> int:
        status, _ = await self.get(f"/page/{name}?topic={topic}&at=now&from=0&until=10")
        return status


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with (
        running_broker(
            tmp_path / "data", authorization="on", http_open_paths="/healthz,/readyz"
        ) as broker,
        aiohttp.ClientSession() as session,
    ):
        await until(lambda: broker._state() is HttpState.READY)
        only(broker, *(rule((Op.ALL, kind)) for kind in (TOPIC, GROUP, CLUSTER)))
        async with connection(broker, native) as client:
            for name in ("t", "u"):
                await client.call(create_topic(name))
                await client.call(produce(name, message_set(5)))
        yield Page(broker, session)


def test_every_answer_has_its_right() -> None:
    assert ASKED_FOR.keys() == {*ANSWERS, "download"}
    assert set(ASKED_FOR) == {*CONTENT, *DETAILS, "topics", "members", "settings"}


async def test_topics_that_may_be_seen(page: Page) -> None:
    for rules, names in (
        ([], []),
        ([rule((Op.READ, TOPIC), "u")], ["u"]),
        ([rule((Op.DESCRIBE, TOPIC))], ["t", "u"]),
    ):
        only(page.broker, *rules)
        status, answer = await page.get("/page/topics")
        assert (status, [topic["name"] for topic in answer["topics"]]) == (200, names)
        assert answer["topic_count"] == answer["matching"] == len(names)
        assert all("retention_ms" not in topic for topic in answer["topics"])
    only(page.broker, rule((Op.DESCRIBE, TOPIC)), rule((Op.DESCRIBE_CONFIGS, TOPIC), "t"))
    _, answer = await page.get("/page/topics")
    assert ["retention_ms" in topic for topic in answer["topics"]] == [True, False]


async def test_what_is_hidden_is_named(page: Page) -> None:
    """By the same words whether it is there or not."""
    everything = [rule((Op.ALL, kind)) for kind in (TOPIC, GROUP, CLUSTER)]
    for rules, hidden, limited, no_groups in (
        ([rule((Op.DESCRIBE, TOPIC), "t")], ["settings", "messages"], True, True),
        ([rule((Op.READ, TOPIC))], ["settings"], False, True),
        ([rule((Op.READ, TOPIC)), rule((Op.DESCRIBE_CONFIGS, TOPIC), "t")], [], False, True),
        (everything, [], False, False),
    ):
        only(page.broker, *rules)
        _, answer = await page.get("/page/topics")
        assert (answer["topics"][0]["hidden"], answer["limited"]) == (hidden, limited)
        assert answer["user"]["name"] == "ANONYMOUS"
        assert (await page.get("/page/consumers"))[1]["hidden"] == no_groups
    denied = rule((Op.DESCRIBE, TOPIC), "u", permission=Permission.DENY)
    only(page.broker, *everything, denied)
    assert (await page.get("/page/topics"))[1]["limited"]
    assert (await page.get("/page/consumers"))[1]["hidden"]


@pytest.mark.parametrize("name", [*CONTENT, *DETAILS])
async def test_one_topic(page: Page, name: str) -> None:
    only(page.broker)
    assert [await page.ask(name, topic) for topic in ("t", "none")] == [403, 403]
    only(page.broker, rule((Op.DESCRIBE, TOPIC), "t"))
    assert await page.ask(name, "t") == (403 if name in CONTENT else 200)
    assert await page.ask(name, "u") == 403
    only(page.broker, rule((Op.READ, TOPIC), "t"))
    assert [await page.ask(name, topic) for topic in ("t", "u")] == [200, 403]


async def test_settings_have_a_right_of_their_own(page: Page) -> None:
    for rules, status in (
        ([rule((Op.READ, TOPIC))], 403),
        ([rule((Op.DESCRIBE_CONFIGS, TOPIC), "u")], 403),
        ([rule((Op.DESCRIBE_CONFIGS, TOPIC), "t")], 200),
    ):
        only(page.broker, *rules)
        assert await page.ask("settings", "t") == status


async def test_when_retention_begins_is_a_setting(page: Page) -> None:
    for rules, is_shown in (
        ([rule((Op.DESCRIBE, TOPIC))], False),
        ([rule((Op.READ, TOPIC)), rule((Op.DESCRIBE_CONFIGS, TOPIC), "u")], False),
        ([rule((Op.DESCRIBE, TOPIC)), rule((Op.DESCRIBE_CONFIGS, TOPIC), "t")], True),
    ):
        only(page.broker, *rules)
        status, answer = await page.get("/page/histogram?topic=t&from=0&until=10")
        assert (status, sum(answer["counts"])) == (200, 1)
        assert (answer["retention_start_ms"] is not None) == is_shown


async def test_metrics_name_every_topic(page: Page) -> None:
    only(page.broker)
    status, text = await page.get("/metrics")
    assert (status, 'topic="t"' in text) == (403, False)
    assert (await page.get("/readyz"))[0] == 200
    only(page.broker, rule((Op.DESCRIBE, CLUSTER)))
    status, text = await page.get("/metrics")
    assert (status, 'topic="t"' in text) == (200, True)


async def test_members_are_for_who_may_describe_the_cluster(tmp_path: Path) -> None:
    settings = {"broker_id": 1, "cluster_create": True, "cluster_brokers": 1}
    async with (
        running_broker(tmp_path / "data", authorization="on", **settings) as broker,  # type: ignore[arg-type]
        aiohttp.ClientSession() as session,
    ):
        await until(lambda: broker._state() is HttpState.READY)
        page = Page(broker, session)
        for rules, ids in (
            ([rule((Op.DESCRIBE, TOPIC))], []),
            ([rule((Op.DESCRIBE, CLUSTER))], [1]),
        ):
            only(broker, *rules)
            status, answer = await page.get("/page/members")
            assert (status, [one["id"] for one in answer["members"]]) == (200, ids)
            assert answer["hidden"] == (not ids)


async def test_refusals_of_the_page_are_told(tmp_path: Path) -> None:
    stream = io.StringIO()
    async with (
        running_broker(
            tmp_path / "data", authorization="on", log_stream=stream, log_format="json"
        ) as broker,
        aiohttp.ClientSession() as session,
    ):
        await until(lambda: broker._state() is HttpState.READY)
        assert await Page(broker, session).ask("messages", "t") == 403
    (line,) = [line for line in map(json.loads, stream.getvalue().splitlines()) if "logger" in line]
    assert (line["request"], line["operation"], line["resource"]) == (
        "messages",
        "Read",
        "topic 't'",
    )


async def test_nothing_is_shown_by_rules_that_may_be_old(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a follower whose leader is silent."""
    replication = page.broker.services.replication
    old = "the rules may be old; ask the leader"
    monkeypatch.setattr(replication, "rules_may_be_old", lambda: old)
    status, answer = await page.get("/page/topics")
    assert (status, answer["error"]) == (503, "the rules may be old; ask the leader")
    assert await page.ask("messages", "t") == 503
