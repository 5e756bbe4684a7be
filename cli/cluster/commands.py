"""`horolog cluster`: brokers that have the same data, of which one leads."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from ...client.administer.replicas import ReplicaAdmin
from ...client.cluster.servers import Servers
from ...client.errors import ConnectionFailed
from ...protocol.api.cluster.describe_replicas import (
    NOT_KNOWN,
    DescribeReplicasResponse,
    ReplicaMember,
)
from ...protocol.errors import HorologError, RequestTimedOut
from ..errors import CommandFailed
from ..options import DEFAULT_SERVER, Json, Server, group
from ..output import NOTHING, emit, emit_object, json_line, shown_time, table
from .etcd import create, remove
from .log_ends import contested_as_text, ends_as_objects, ends_as_text, ends_of

LEADER_TIMEOUT_MS: Final = 3_000
"""How long a leader is waited for that perhaps is no more."""

OTHERS_WITHIN_S: Final = 0.3
"""How long the other brokers are waited for once a leader has answered."""

DEPOSED: Final = "deposed"
"""State of a broker that takes itself for the leader, where another one leads in a later epoch."""

cluster = group("Show who leads and who follows, and let another broker lead.")
cluster.command()(create)
cluster.command()(remove)


@cluster.command()
def status(server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """Show who leads, who is in sync, and how far the others are behind.

    The leader is asked, where the broker at --server knows it and it answers; else what that
    broker knows is shown. Of several addresses, of which none leads, the one counts that knows the
    newest epoch; and where the logs of each end is shown beside each other, to choose whom to
    promote. A broker is `deposed` that still takes itself for the leader and is not.
    """
    found, answers = asyncio.run(_status(server))
    ends = ends_of(answers)
    if as_json:
        contested = {"contested_epoch": _known(found.contested_epoch)}
        emit([json_line(_as_object(found) | contested | {"log_ends": ends_as_objects(ends)})])
    else:
        emit(_as_text(found) + ends_as_text(ends) + contested_as_text(answers))


async def _describe(server: Servers, timeout_ms: int = 30_000) -> DescribeReplicasResponse:
    async with ReplicaAdmin(server, request_timeout_ms=timeout_ms) as admin:
        return await admin.describe()


async def _describe_any(
    server: Servers,
) -> tuple[Servers, DescribeReplicasResponse, list[DescribeReplicasResponse]]:
    """The answer of the leader, or without a leader of the broker that knows the newest epoch; its
    address; and all answers.

    All addresses are asked at once. A broker that may lead soon is not waited for. Once a leader
    has answered, the others have `OTHERS_WITHIN_S`: a leader of an older epoch that has not heard
    of the newer one answers as well. Raises what kept one from answering.
    """
    if len(server.addresses) == 1:
        answer = await _describe(server)
        return server, answer, [answer]
    asked = [
        asyncio.ensure_future(_describe_at(_at(server, address))) for address in server.addresses
    ]
    found: list[tuple[Servers, DescribeReplicasResponse]] = []
    failures: list[HorologError] = []
    limit = asyncio.timeout(None)
    try:
        async with limit:
            for each in asyncio.as_completed(asked):
                try:
                    found.append(await each)
                except HorologError as error:
                    failures.append(error)
                    continue
                if _leads(found[-1][1]) and limit.when() is None:
                    limit.reschedule(asyncio.get_running_loop().time() + OTHERS_WITHIN_S)
    except TimeoutError:
        if not limit.expired():
            raise
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    if found:
        address, newest = max(found, key=lambda one: (one[1].epoch, _leads(one[1])))
        answers = [one for _, one in found]
        _complete(newest, answers)
        return address, newest, answers
    raise _unanswered(server, failures)


def _leads(answer: DescribeReplicasResponse) -> bool:
    return answer.leader == answer.broker_id


def _complete(newest: DescribeReplicasResponse, found: list[DescribeReplicasResponse]) -> None:
    """Add what other brokers say of themselves: where none that leads has said it, and of leaders
    of older epochs."""
    themselves: dict[int, ReplicaMember] = {}
    for answer in found:
        deposed = _leads(answer) and answer.epoch < newest.epoch
        if _leads(newest) and not deposed:
            continue
        for member in answer.members:
            if member.broker_id == answer.broker_id:
                member.state = DEPOSED if deposed else member.state
                themselves[member.broker_id] = member
    rows = {member.broker_id: member for member in newest.members} | themselves
    newest.members = [rows[broker_id] for broker_id in sorted(rows)]


async def _describe_at(server: Servers) -> tuple[Servers, DescribeReplicasResponse]:
    return server, await _describe(server, LEADER_TIMEOUT_MS)


def _unanswered(server: Servers, failures: list[HorologError]) -> HorologError:
    for failure in failures:
        if not isinstance(failure, ConnectionFailed | RequestTimedOut):
            return failure
    reasons = "; ".join(failure.message for failure in failures)
    return ConnectionFailed(f"no leader at {','.join(server.addresses)}: {reasons}")


async def _status(
    server: Servers,
) -> tuple[DescribeReplicasResponse, Sequence[DescribeReplicasResponse]]:
    """How the cluster is; and what each broker says of its logs, if none leads."""
    _, found, answers = await _describe_any(server)
    leader = _leader_address(found)
    if leader is not None and not _leads(found):
        with suppress(ConnectionFailed, RequestTimedOut, ValueError):
            asked = await _describe(_at(server, leader), LEADER_TIMEOUT_MS)
            if _leads(asked) and asked.epoch >= found.epoch:
                return asked, []
    return found, answers if found.leader == NOT_KNOWN else []


def _at(server: Servers, address: str) -> Servers:
    """Another broker, to which the same way leads."""
    return replace(server, addresses=(address.rpartition("://")[2],))


def _leader_address(found: DescribeReplicasResponse) -> str | None:
    for member in found.members:
        if member.broker_id != found.broker_id and (
            member.state == "leader" or member.broker_id == found.leader
        ):
            return member.address or None
    return None


def _as_object(found: DescribeReplicasResponse) -> dict[str, Any]:
    return {
        "cluster": found.cluster_id,
        "epoch": found.epoch,
        "leader": _known(found.leader),
        "in_sync": list(found.in_sync),
        "unreadable": found.unreadable or None,
        "members": [
            {
                "id": member.broker_id,
                "address": member.address or None,
                "kafka_address": member.kafka_address or None,
                "state": member.state,
                "lag_messages": _known(member.lag_messages),
                "lag_seconds": _seconds(member),
                "since_ms": _known(member.since_ms),
            }
            for member in found.members
        ],
    }


def _known(number: int) -> int | None:
    return None if number == NOT_KNOWN else number


def _seconds(member: ReplicaMember) -> float | None:
    return None if member.lag_ms == NOT_KNOWN else member.lag_ms / 1000


def _as_text(found: DescribeReplicasResponse) -> list[str]:
    leader = "nobody leads" if found.leader == NOT_KNOWN else f"broker {found.leader} leads"
    lines = [f"cluster {found.cluster_id}: {leader}, epoch {found.epoch}"]
    if found.waits_for:
        lines.append(f"broker {found.broker_id} does not lead: {found.waits_for}")
    rows = [
        (
            str(member.broker_id),
            member.state,
            member.address or NOTHING,
            _shown(_known(member.lag_messages), ""),
            _shown(_seconds(member), " s"),
            shown_time(_known(member.since_ms)),
        )
        for member in found.members
    ]
    columns = ("broker", "state", "address", "lag", "lag in time", "since")
    lines += ["", *table(columns, rows, right=("broker", "lag", "lag in time"))]
    if found.unreadable:
        lines += ["", f"the leader, or broker {found.broker_id}, cannot read {found.unreadable}"]
    if found.promise:
        lines += ["", f"to promote broker {found.broker_id} may lose messages: {found.promise}"]
        lines.append(f"what may be missing there: {found.missing}")
    return lines


def _shown(number: float | None, unit: str) -> str:
    return NOTHING if number is None else f"{number:,}{unit}"


@cluster.command()
def promote(
    broker_id: Annotated[
        int | None,
        typer.Argument(
            metavar="[ID]", min=1, max=999, help="The broker; without it the one at --server."
        ),
    ] = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Do it although messages may be lost that were answered."
        ),
    ] = False,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Let another broker lead.

    The leader hands over when the other one has everything; nothing is lost then. Where it does not
    answer, the other one leads without its word: without loss only where
    min.insync.replicas is the number of brokers, else with --accept-loss. Start the old
    leader with --follow after that.
    """
    promoted, epoch, planned = asyncio.run(_promote(server, broker_id, accept_loss))
    if as_json:
        emit_object({"leader": promoted, "epoch": epoch, "handed_over": planned})
    else:
        how = "has handed over to it" if planned else "was not asked"
        emit([f"broker {promoted} leads; the old leader {how}"])


async def _promote(
    server: Servers, broker_id: int | None, accept_loss: bool
) -> tuple[int, int, bool]:
    """Who leads now, since which epoch, and whether the old leader handed over."""
    several = server
    server, found, _ = await _describe_any(several)
    if broker_id is None and len(several.addresses) > 1 and not _leads(found):
        raise CommandFailed(
            f"nobody leads at {','.join(several.addresses)}: say which broker is to lead "
            "(promote ID)"
        )
    wanted = broker_id or found.broker_id
    if wanted == found.broker_id and _leads(found):
        return wanted, found.epoch, True
    leader = server if _leads(found) else None
    if leader is None:
        address = _leader_address(found)
        leader = None if address is None else _at(server, address)
    if leader is not None:
        try:
            async with ReplicaAdmin(leader, request_timeout_ms=LEADER_TIMEOUT_MS) as admin:
                if (await admin.describe()).leader != NOT_KNOWN:
                    epoch = await admin.promote(wanted)
                    return wanted, epoch, True
        except (ConnectionFailed, RequestTimedOut):
            if leader is server:
                raise
    target = server
    if wanted != found.broker_id:
        target = _at(server, _address_of(found, wanted))
    async with ReplicaAdmin(target) as admin:
        return wanted, await admin.promote(0, accept_loss=accept_loss), False


def _address_of(found: DescribeReplicasResponse, broker_id: int) -> str:
    for member in found.members:
        if member.broker_id == broker_id and member.address:
            return member.address
    raise CommandFailed(
        f"broker {found.broker_id} does not know where broker {broker_id} is; ask that one "
        "(--server)"
    )
