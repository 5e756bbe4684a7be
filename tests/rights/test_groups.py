"""What a user may do with groups, with the calls of `Admin`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from horolog import (
    Admin,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
)
from horolog.protocol.api.security.acl_terms import Operation as Op
from horolog.server.broker import Broker

from .conftest import CLUSTER, GROUP, TOPIC, Strict, only, rule

ALL = tuple(rule((Op.ALL, kind)) for kind in (TOPIC, GROUP, CLUSTER))


@asynccontextmanager
async def prepared(strict: Strict, kind: str) -> AsyncIterator[tuple[Broker, Admin]]:
    """A broker whose groups a to d have a position in the topics t1 and t2."""
    async with strict() as broker:
        only(broker, *ALL)
        async with Admin(broker.addresses.native) as admin:
            for topic in ("t1", "t2"):
                await admin.create_topic(topic)
                for group in "abcd":
                    await admin.commit_position(group, topic, 0, 0)
        kafka = f"kafka://{broker.addresses.kafka}"
        async with Admin(broker.addresses.native if kind == "native" else kafka) as admin:
            yield broker, admin


KINDS = pytest.mark.parametrize("kind", ["native", "kafka"])


@KINDS
async def test_groups_that_may_not_be_described_are_not_listed(strict: Strict, kind: str) -> None:
    """Pages of the list go on however much of them is left out."""
    async with prepared(strict, kind) as (broker, admin):
        only(broker, rule((Op.DESCRIBE, GROUP), "c"), rule((Op.DESCRIBE, TOPIC), "t2"))
        for limit in (1, 2, 100):
            with pytest.MonkeyPatch.context() as patch:
                if kind == "native":
                    patch.setattr("horolog.server.handlers.groups_admin.MAX_LISTED", limit)
                assert [each.name for each in await admin.list_groups()] == ["c"]
        with pytest.raises(GroupAuthorizationFailed):
            await admin.describe_group("a")
        if kind == "native":
            found = await admin.describe_group("c")
            assert [each.topic for each in found.positions] == ["t2"]


@KINDS
async def test_positions_move_with_read_on_group_and_topic(strict: Strict, kind: str) -> None:
    async with prepared(strict, kind) as (broker, admin):
        only(broker, rule((Op.DESCRIBE, GROUP)), rule((Op.READ, TOPIC)))
        with pytest.raises(GroupAuthorizationFailed):
            await admin.seek_group("a", "latest")
        only(broker, rule((Op.READ, GROUP)), rule((Op.DESCRIBE, TOPIC)))
        with pytest.raises(TopicAuthorizationFailed, match="0 of 2 positions moved"):
            await admin.seek_group("a", "latest")
        only(
            broker,
            *(rule((Op.READ, GROUP)), rule((Op.DESCRIBE, TOPIC))),
            rule((Op.READ, TOPIC), "t2"),
        )
        once = r"1 of 2 positions moved; not t1-0: (?!t1-0)"
        with pytest.raises(TopicAuthorizationFailed, match=once):
            await admin.seek_group("a", "latest")
        await admin.seek_group("a", "latest", topic="t2")
        only(broker, rule((Op.READ, GROUP)), rule((Op.READ, TOPIC)))
        await admin.seek_group("a", "latest")


@KINDS
async def test_deleting_takes_delete_on_the_group(strict: Strict, kind: str) -> None:
    async with prepared(strict, kind) as (broker, admin):
        only(broker, rule((Op.READ, GROUP)), rule((Op.READ, TOPIC)))
        with pytest.raises(GroupAuthorizationFailed):
            await admin.delete_group("a")
        with pytest.raises(GroupAuthorizationFailed):
            await admin.delete_group("a", topic="t1")
        only(broker, rule((Op.DELETE, GROUP)), rule((Op.DESCRIBE, TOPIC)))
        with pytest.raises(TopicAuthorizationFailed):
            await admin.delete_group("a", topic="t1")
        await admin.delete_group("a")
        only(broker, rule((Op.DELETE, GROUP)), rule((Op.READ, TOPIC)))
        await admin.delete_group("b", topic="t1")
        (left,) = (await admin.describe_group("b")).positions
        assert left.topic == "t2"
