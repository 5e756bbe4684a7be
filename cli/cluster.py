"""`horolog cluster`: shows a cluster of brokers with the same data, and changes its leader."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from ..client.administer.admin import ReplicaAdmin
from ..client.cluster.servers import Servers
from ..client.errors import ConnectionFailed
from ..config.broker import broker_settings
from ..protocol.api.cluster.describe_replicas import (
    NOT_KNOWN,
    DescribeReplicasResponse,
    LogEnd,
    ReplicaMember,
)
from ..protocol.errors import HorologError, InvalidConfig, RequestTimedOut
from ..storage.directory.known_files import CLUSTER_ID_FILE, IDENTITY_FILE
from ..storage.directory.lock import LOCK_FILE
from ..storage.names import METADATA_TOPIC
from .errors import CommandFailed, WrongUsage
from .options import DEFAULT_SERVER, Json, Server, group
from .output import NOTHING, emit, emit_object, json_line, shown_time, table

if TYPE_CHECKING:
    from ..server.replication.etcd.client import Access

LogEnds = Mapping[tuple[str, int], Mapping[int, LogEnd]]
"""Log ends by topic and partition, and by the broker that reported them."""

T = TypeVar("T")

Etcd = Annotated[
    str, typer.Option("--etcd", metavar="URL[,URL]", help="Addresses of etcd, separated by commas.")
]
Credentials = Annotated[
    str,
    typer.Option(
        "--etcd-credentials",
        metavar="FILE",
        help="File with user and password of etcd, one per line.",
    ),
]
Ca = Annotated[
    str,
    typer.Option(
        "--etcd-ca", metavar="FILE", help="CA certificates that signed etcd's certificate."
    ),
]
Cert = Annotated[
    str, typer.Option("--etcd-cert", metavar="FILE", help="Client certificate for etcd.")
]
Key = Annotated[
    str, typer.Option("--etcd-key", metavar="FILE", help="Private key of the client certificate.")
]

BY_HAND: Final = (
    "--etcd and --cluster say in which cluster. Without etcd there is no list of brokers to take "
    "one out of: stop that broker, and start the others with a smaller cluster.brokers and, where "
    "it is larger than that, min.insync.replicas"
)

LEADER_TIMEOUT_MS: Final = 3_000
"""How long to wait for a leader that may be gone."""

OTHERS_WITHIN_S: Final = 0.3
"""How long to wait for the other brokers once a leader has answered."""

DEPOSED: Final = "deposed"
"""State of a broker that believes it is the leader while another leads in a later epoch."""

cluster = group("Show who leads and who follows, and let another broker lead.")


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the cluster in etcd.")],
    etcd: Etcd,
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir", metavar="DIR", help="Directory with the data of the new cluster."
        ),
    ],
    broker_id: Annotated[
        int | None,
        typer.Option(
            "--broker-id",
            min=1,
            max=999,
            help="Broker id for a directory that has none; 1 by default.",
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a cluster of this name in etcd.")
    ] = False,
    credentials: Credentials = "",
    ca: Ca = "",
    cert: Cert = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Make a cluster in etcd from the data in a directory.

    Stop the broker of that directory first. Started with --etcd and --cluster, it leads, and all
    other brokers copy from it. --replace is for an etcd that was restored from a backup: stop all
    brokers of the cluster, and use the directory of the broker that led last.
    """
    access = _access(name, etcd, credentials, ca, cert, key)
    from ..server.replication.etcd.store import create as create_in_etcd

    with _made(data_dir):
        made = _run(lambda: create_in_etcd(access, name, data_dir, broker_id, replace=replace))
    if as_json:
        emit_object({"cluster": made.cluster_id, "broker": made.broker_id, "name": name})
    else:
        emit([f"created cluster {name} ({made.cluster_id}); start broker {made.broker_id} first"])


@contextmanager
def _made(directory: Path) -> Iterator[None]:
    """Make a directory for the block. If the block fails before etcd can have its broker, remove
    the directory again."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        if not (directory / IDENTITY_FILE).exists():
            with suppress(OSError):
                if directory in missing:
                    (directory / LOCK_FILE).unlink(missing_ok=True)
                    (directory / CLUSTER_ID_FILE).unlink(missing_ok=True)
                for each in missing:
                    each.rmdir()
        raise


def remove(
    broker_id: Annotated[
        int, typer.Argument(metavar="ID", min=1, max=999, help="Id of the broker.")
    ],
    etcd: Etcd = "",
    name: Annotated[
        str, typer.Option("--cluster", metavar="NAME", help="Name of the cluster in etcd.")
    ] = "",
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Remove it although other brokers may lack its messages."
        ),
    ] = False,
    credentials: Credentials = "",
    ca: Ca = "",
    cert: Cert = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Remove a broker that does not come back from a cluster in etcd.

    The broker must not run. A broker that is stopped normally leaves the in-sync replicas by
    itself. This command is for a broker that the others wait for, because it alone may have
    acknowledged messages. A cluster without etcd has no list of brokers: there cluster.brokers
    says how many there are.
    """
    if not etcd or not name:
        raise WrongUsage(BY_HAND)
    access = _access(name, etcd, credentials, ca, cert, key)
    from ..server.replication.etcd.store import remove as remove_in_etcd

    was_there = _run(lambda: remove_in_etcd(access, name, broker_id, accept_loss=accept_loss))
    if as_json:
        emit_object({"broker": broker_id, "removed": was_there})
    elif was_there:
        emit([f"broker {broker_id} is not waited for any more"])
    else:
        emit([f"broker {broker_id} was not in the state of cluster {name}; no broker waits for it"])


def _access(name: str, etcd: str, credentials: str, ca: str, cert: str, key: str) -> "Access":
    given = {
        "cluster.name": name,
        "cluster.etcd": etcd,
        "cluster.etcd.credentials": credentials,
        "cluster.etcd.ca": ca,
        "cluster.etcd.cert": cert,
        "cluster.etcd.key": key,
    }
    from ..server.replication.etcd.client import access_of

    try:
        settings = broker_settings({one: text for one, text in given.items() if text})
        if not name or not etcd:
            raise InvalidConfig("NAME and --etcd must not be empty")
        access = access_of(settings)
        access.tls()  # Called to read the files of certificates, which may be wrong.
    except InvalidConfig as error:
        raise WrongUsage(error.message) from None
    return access


def _run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    try:
        return asyncio.run(work())
    except HorologError as error:
        raise CommandFailed(error.message) from error


cluster.command()(create)
cluster.command()(remove)


@cluster.command()
def status(server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """Show who leads, who is in sync, and how far the others are behind.

    The answer is the leader's, if the broker at --server knows the leader and the leader answers;
    otherwise it is that of the broker at --server. If there are several addresses and none is the
    leader's, the answer is that of the broker with the newest epoch, and the log ends of all
    brokers are shown side by side, to help choose which one to promote. A `deposed` broker still
    believes that it leads.
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
    """Return address and answer of the leader, or of the broker with the newest epoch if none
    leads; and all answers.

    All addresses are asked at once. A broker that may lead soon is not waited for. Once a leader
    has answered, the others get `OTHERS_WITHIN_S` more: a deposed leader of an older epoch also
    answers as leader. If no broker answers, raises the error of one.
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
    """Add to `newest` what other brokers report about themselves: all of them if `newest` is not of
    a leader, else only deposed leaders."""
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
    """Return the state of the cluster, and all answers with their log ends if there is no
    leader."""
    _, found, answers = await _describe_any(server)
    leader = _leader_address(found)
    if leader is not None and not _leads(found):
        with suppress(ConnectionFailed, RequestTimedOut, ValueError):
            asked = await _describe(_at(server, leader), LEADER_TIMEOUT_MS)
            if _leads(asked) and asked.epoch >= found.epoch:
                return asked, []
    return found, answers if found.leader == NOT_KNOWN else []


def _at(server: Servers, address: str) -> Servers:
    """Return `server` with the address of another broker, and the same security."""
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
    leader = "no leader" if found.leader == NOT_KNOWN else f"broker {found.leader} leads"
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
            metavar="[ID]",
            min=1,
            max=999,
            help="Id of the new leader; by default the broker at --server.",
        ),
    ] = None,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Promote although acknowledged messages may be lost."),
    ] = False,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Let another broker lead.

    The leader hands over once the other broker has all messages, so nothing is lost. If the leader
    does not answer, the other broker leads without it. That is without loss only if
    min.insync.replicas is the number of brokers; otherwise it needs --accept-loss. Start the old
    leader with --follow afterwards.
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
    """Promote a broker. Return the new leader, its epoch, and whether the old one handed over."""
    several = server
    server, found, _ = await _describe_any(several)
    if broker_id is None and len(several.addresses) > 1 and not _leads(found):
        raise CommandFailed(
            f"none of the brokers at {','.join(several.addresses)} leads: name the broker to "
            "promote (promote ID)"
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


def ends_of(answers: Sequence[DescribeReplicasResponse]) -> LogEnds:
    """Collect the log ends that brokers reported of their own logs, by partition; a broker without
    the partition is left out."""
    found: dict[tuple[str, int], dict[int, LogEnd]] = {}
    for answer in sorted(answers, key=lambda one: one.broker_id):
        for one in answer.log_ends:
            found.setdefault((one.topic, one.partition), {})[answer.broker_id] = one
    return dict(sorted(found.items()))


def contested_as_text(answers: Sequence[DescribeReplicasResponse]) -> list[str]:
    """Return a table of contested messages: from an epoch on that two brokers led, whose messages
    each broker has."""
    rows = [
        [
            f"{one.topic}-{one.partition}",
            str(answer.broker_id),
            f"{one.contested_from:,}",
            f"{one.end:,}",
            str(answer.contested_leader),
        ]
        for answer in answers
        for one in answer.log_ends
        if one.contested_from != NOT_KNOWN
    ]
    if not rows:
        return []
    epoch = next(one.contested_epoch for one in answers if one.contested_epoch != NOT_KNOWN)
    columns = ["partition", "at broker", "from offset", "until", "led by broker"]
    title = f"epoch {epoch} was led by two brokers; messages of it, and of later ones:"
    return ["", title, *table(columns, sorted(rows), right=columns[1:])]


def ends_as_objects(ends: LogEnds) -> list[dict[str, Any]]:
    """Return the log ends of all partitions, for --json."""
    return [
        {
            "topic": topic,
            "partition": partition,
            "brokers": [
                {
                    "id": broker_id,
                    "end": one.end,
                    "epoch": one.epoch,
                    "contested_from": None
                    if one.contested_from == NOT_KNOWN
                    else one.contested_from,
                }
                for broker_id, one in by_broker.items()
            ],
        }
        for (topic, partition), by_broker in ends.items()
    ]


def ends_as_text(ends: LogEnds) -> list[str]:
    """Return a table of the partitions whose log ends differ between brokers, and of the sums of
    all log ends."""
    if not ends:
        return []
    brokers = sorted({broker_id for by_broker in ends.values() for broker_id in by_broker})
    rows = []
    for (topic, partition), by_broker in ends.items():
        told = [by_broker.get(broker_id) for broker_id in brokers]
        epochs = {one.epoch for one in by_broker.values()}
        if len(epochs) == 1 and len({one and one.end for one in told}) == 1:
            continue
        rows.append([f"{topic}-{partition}", *(_shown_end(one, len(epochs) > 1) for one in told)])
    alike = len(ends) - len(rows)
    rows.append(["sum of all topics", *(f"{_sum(ends, broker_id):,}" for broker_id in brokers)])
    columns = ["log ends", *(f"broker {broker_id}" for broker_id in brokers)]
    lines = ["", *table(columns, rows, right=columns[1:])]
    if len(brokers) > 1:
        lines.append(f"partitions that end alike at all of them: {alike:,}")
    return lines


def _shown_end(one: LogEnd | None, with_epoch: bool) -> str:
    if one is None:
        return NOTHING
    return f"{one.end:,} (epoch {one.epoch})" if with_epoch else f"{one.end:,}"


def _sum(ends: LogEnds, broker_id: int) -> int:
    return sum(
        by_broker[broker_id].end
        for (topic, _), by_broker in ends.items()
        if topic != METADATA_TOPIC and broker_id in by_broker
    )
