"""A rule that is taken away holds for the next request, measured beside many that are under way."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

from horolog.clock import SystemClock
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.security.acl_terms import Operation as Op
from horolog.protocol.api.security.acls import (
    AclCreation,
    AclFilter,
    CreateAclsRequest,
    DeleteAclsRequest,
)
from horolog.testing.requests import create_topic, fetch, message_set, produce, result
from horolog.testing.wire import Wire

from .conftest import ANONYMOUS, CLUSTER, GROUP, TOPIC, Strict, connection, only, rule

ROUNDS = 60
CONNECTIONS = 4
"""Of each protocol."""
ALLOWED, REFUSED = 0, 29

_WRITE, _READ = 4, 3


@dataclass
class Asker:
    """Asks again and again for the same, and knows when each request was sent."""

    client: Wire
    request: object
    now: Callable[[], float]
    answers: list[tuple[float, float, int]] = field(default_factory=list)
    """When it was sent, when it was answered, and the error code."""

    told: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run(self) -> None:
        while True:
            sent = self.now()
            code = result(await self.client.call(self.request)).error_code
            async with self.told:
                self.answers.append((sent, self.now(), code))
                self.told.notify_all()

    async def asked_again(self) -> None:
        """Wait until a request was answered that is sent from now on."""
        enough = len(self.answers) + 2
        async with self.told:
            await self.told.wait_for(lambda: len(self.answers) >= enough)


@pytest.mark.parametrize(("operation", "number"), [(Op.WRITE, _WRITE), (Op.READ, _READ)])
async def test_no_request_that_is_sent_behind_the_answer_is_let_in(
    strict: Strict, operation: Op, number: int
) -> None:
    """And once the rule is back, none is refused that is sent behind that."""
    request = produce("t", message_set(5)) if operation is Op.WRITE else fetch("t", (0, 0))
    taken = DeleteAclsRequest(filters=[_filter(number)])
    given = CreateAclsRequest(creations=[_creation(number)])
    now = SystemClock().monotonic
    changes: list[tuple[float, float, int]] = []
    async with strict() as broker, AsyncExitStack() as open_ones:
        everything = [rule((Op.ALL, kind)) for kind in (TOPIC, GROUP, CLUSTER)]
        only(broker, *everything)
        admin = await open_ones.enter_async_context(connection(broker, native))
        await admin.call(create_topic("t"))
        only(broker, rule((Op.ALTER, CLUSTER)), rule((operation, TOPIC), "t"))
        askers = [
            Asker(await open_ones.enter_async_context(connection(broker, encoding)), request, now)
            for encoding in (native, kafka)
            for _ in range(CONNECTIONS)
        ]
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(asker.run()) for asker in askers]
            for _ in range(ROUNDS):
                for change, code in ((taken, REFUSED), (given, ALLOWED)):
                    began = now()
                    await admin.call(change)
                    changes.append((began, now(), code))
                    await asyncio.gather(*(asker.asked_again() for asker in askers))
            for task in running:
                task.cancel()
    wrong, counted = 0, 0
    ends = [began for began, _, _ in changes[1:]]
    for (_, answered, code), end in zip(changes, ends, strict=False):
        for asker in askers:
            between = [each for each in asker.answers if answered < each[0] and each[1] < end]
            counted += len(between)
            wrong += sum(told != code for _, _, told in between)
    assert counted >= ROUNDS * len(askers)
    assert wrong == 0


def _filter(operation: int) -> AclFilter:
    return AclFilter(
        resource_type=2,
        resource_name=None,
        principal=None,
        host=None,
        operation=operation,
        permission_type=1,
    )


def _creation(operation: int) -> AclCreation:
    return AclCreation(
        resource_type=2,
        resource_name="t",
        principal=ANONYMOUS,
        host="*",
        operation=operation,
        permission_type=3,
    )
