"""Finding the broker that leads, among several Horolog brokers with the same topics."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ...config.address import join_address
from ...protocol.api.topics.metadata import METADATA, MetadataRequest, MetadataResponse
from ...protocol.errors import HorologError, RequestTimedOut
from ..errors import ConnectionFailed
from .connection import ClientConnection

Reach = Callable[[str], Awaitable[ClientConnection]]
"""Connects to an address."""

AGAIN_S: Final = 0.5
"""A broker that does not lead is asked again after so long, while another one has not answered."""

_TOLD_BY_ITSELF: Final = -1
"""The id of a broker that does not say which one it is: it is older than followers are."""


class NobodyLeads(ConnectionFailed):
    """There are brokers, and none of them leads: perhaps one does soon."""


async def connect_to_leader(addresses: Sequence[str], reach: Reach) -> ClientConnection:
    """A connection to the broker that says that it leads.

    All addresses are asked at the same time, so that a broker that does not answer delays nothing;
    and so is an address that a follower gives for its leader. Who does not lead is asked again
    while another one, which perhaps is no more, has not answered. Raises NobodyLeads when none
    leads, ConnectionFailed when none can be reached, and what kept the client from being let in
    when that is why.
    """
    asked: dict[asyncio.Future[tuple[ClientConnection | None, str | None]], str] = {}
    unanswered: set[str] = set()
    known: set[str] = set()
    failures: dict[str, HorologError] = {}

    def ask_first(address: str) -> None:
        if address not in known:
            known.add(address)
            unanswered.add(address)
            asked[asyncio.ensure_future(_ask(reach, address))] = address

    for address in addresses:
        ask_first(address)
    try:
        while unanswered:
            ended, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            answer = ended.pop()
            address = asked.pop(answer)
            unanswered.discard(address)
            try:
                connection, leader = answer.result()
            except HorologError as error:
                failures[address] = error
                continue
            if connection is not None:
                return connection
            failures[address] = NobodyLeads(f"{address} does not lead")
            if leader is not None:
                ask_first(leader)
            asked[asyncio.ensure_future(_ask(reach, address, AGAIN_S))] = address
    finally:
        await _drop(list(asked))
    raise _none_leads(addresses, list(failures.values()))


async def _ask(
    reach: Reach, address: str, pause_s: float = 0.0
) -> tuple[ClientConnection | None, str | None]:
    """The connection if this broker leads; else the leader's address, if the broker knows it."""
    await asyncio.sleep(pause_s)
    connection = await reach(address)
    leads = False
    try:
        response: MetadataResponse = await connection.submit(
            METADATA, MetadataRequest(topics=[], allow_auto_topic_creation=False)
        )
        leads = response.node_id in (_TOLD_BY_ITSELF, response.controller_id)
        leader = {broker.node_id: broker for broker in response.brokers}.get(response.controller_id)
    except RequestTimedOut as error:
        raise ConnectionFailed(error.message) from None
    finally:
        if not leads:
            connection.abort()
    if leads:
        return connection, None
    return None, None if leader is None else join_address(leader.host, leader.port)


async def _drop(asked: "list[asyncio.Future[tuple[ClientConnection | None, str | None]]]") -> None:
    """End questions whose answer is of no interest any more."""
    for answer in asked:
        answer.cancel()
    for result in await asyncio.gather(*asked, return_exceptions=True):
        if not isinstance(result, BaseException) and result[0] is not None:
            result[0].abort()


def _none_leads(addresses: Sequence[str], failures: Sequence[HorologError]) -> HorologError:
    for failure in failures:
        if not isinstance(failure, ConnectionFailed):
            return failure
    reasons = "; ".join(failure.message for failure in failures)
    reached = any(isinstance(failure, NobodyLeads) for failure in failures)
    kind = NobodyLeads if reached else ConnectionFailed
    return kind(f"no leader at {','.join(addresses)}: {reasons}")
