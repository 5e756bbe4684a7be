"""`horolog doctor`: checks a broker, its machine and its connections, and says what to repair."""

import asyncio
import os
import ssl
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from .. import __version__
from ..client.administer.admin import Admin
from ..client.cluster.connection import ClientConnection, connect
from ..client.cluster.servers import Servers
from ..client.errors import ConnectionFailed, SecurityError, TlsFailed
from ..client.security.security import SecretFile
from ..clock import Clock, SystemClock
from ..compiled import PRICE, REMEDY
from ..protocol.api.broker.describe_broker import DescribeBrokerResponse
from ..protocol.api.kafka import frames as kafka
from ..protocol.api.native import frames as native
from ..protocol.errors import CodedError, HorologError, RequestTimedOut, UnsupportedVersion
from ..storage.check.findings import Finding as Stored
from ..storage.check.verify import verify
from ..storage.files import SystemFiles
from .errors import WrongUsage
from .options import DEFAULT_SERVER, Json, Server
from .output import emit, json_line, plural, shown_place, shown_size, shown_span, table

EXPIRY_WARNING_DAYS: Final = 21
"""Days before its end from which a certificate gets a warning: enough time to renew it."""

CLOCK_PROBLEM_SECONDS: Final = 1.0
"""Difference of clocks from which messages' times cannot be compared between machines."""

DISK_PROBLEM_SHARE: Final = 0.02
DISK_WARNING_SHARE: Final = 0.10
"""Shares of the disk that are free below which there is a problem or a warning."""

_PROBES: Final = 5
"""Number of requests for the broker's clock; the fastest answer is the most exact."""


class Severity(StrEnum):
    """How serious a finding is. Only a problem makes the exit code 1."""

    GOOD = "good"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """Result of one check."""

    check: str
    verdict: Severity
    finding: str
    fix: str = ""
    """What to do about it; empty if nothing."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The broker's description of itself, and the difference of its clock to this machine's."""

    broker: DescribeBrokerResponse
    clock_difference_seconds: float
    """The broker's clock minus the clock of this machine."""
    uncertain_seconds: float


def doctor(
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Check the files of a data directory here too."),
    ] = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Look for what is wrong, and say what to do about it.

    Checks the broker's version, clock, disk, limits and damage, and whether it accepts messages
    with acks=all. Exit code 1 if there is a problem; warnings leave it at 0.
    """
    if data_dir is not None and not data_dir.is_dir():
        raise WrongUsage(f"--data-dir: {data_dir} is not a directory")
    try:
        stored = None if data_dir is None else verify(SystemFiles(), data_dir)
    except ValueError as error:
        raise WrongUsage(f"--data-dir: {error}") from None

    findings = asyncio.run(security_findings(server, SystemClock()))
    if all(one.verdict is not Severity.PROBLEM for one in findings):
        findings += _server(server)
    if stored is not None:
        findings += _files(stored, data_dir)
    if as_json:
        emit(json_line(asdict(finding)) for finding in findings)
    else:
        rows = [(one.check, one.verdict.value, one.finding) for one in findings]
        emit(table(("check", "", "found"), rows))
        emit(f"To do: {one.fix}." for one in findings if one.fix)
    if any(one.verdict is Severity.PROBLEM for one in findings):
        raise typer.Exit(1)


def _server(server: Servers) -> Iterator[CheckFinding]:
    try:
        probe = asyncio.run(_ask(server))
    except UnsupportedVersion:
        if server.kafka:
            yield CheckFinding(
                "server", Severity.GOOD, f"{server} answers; Kafka's protocol tells no more of it"
            )
            return
        yield CheckFinding(
            "server",
            Severity.WARNING,
            f"{server} answers, but is too old to be asked about itself",
            f"install horolog {__version__} there",
        )
        return
    except (ConnectionFailed, RequestTimedOut, OSError) as error:
        yield CheckFinding(
            "server",
            Severity.PROBLEM,
            " ".join(str(error).split()),
            "start a broker with `horolog serve`, or name another one with --server",
        )
        return
    except HorologError as error:
        yield CheckFinding("server", Severity.PROBLEM, " ".join(str(error).split()))
        return
    yield CheckFinding("server", Severity.GOOD, f"{server} answers")
    yield from judge(probe)


def judge(probe: Probe) -> Iterator[CheckFinding]:
    """Yield the findings about a broker that answered."""
    broker = probe.broker
    yield _version(broker)
    yield _kernel(broker)
    yield from _clock(probe)
    yield _disk(broker)
    yield _limits(broker)
    yield _kafka(broker)
    if broker.damaged_segments:
        yield CheckFinding(
            "damage",
            Severity.PROBLEM,
            f"{broker.damaged_segments} segments have damaged bytes",
            f"stop the broker and run `horolog repair {broker.data_dir}`",
        )
    if broker.failed_partitions:
        yield CheckFinding(
            "appends",
            Severity.PROBLEM,
            f"{broker.failed_partitions} partitions take no messages since a write or sync failed",
            "look for log_failed in the broker's log, mend the disk, and restart the broker",
        )
    if broker.in_sync_most >= 0:
        yield from _in_sync(broker)


async def _ask(server: Servers) -> Probe:
    clock = SystemClock()
    best: Probe | None = None
    async with Admin(server, request_timeout_ms=5_000) as admin:
        for _ in range(_PROBES):
            began = clock.monotonic()
            broker = await admin.describe_broker()
            half = (clock.monotonic() - began) / 2
            difference = (broker.now_ms - clock.now_ms()) / 1000 + half
            if best is None or half < best.uncertain_seconds:
                best = Probe(broker, difference, half)
    assert best is not None
    return best


def _version(broker: DescribeBrokerResponse) -> CheckFinding:
    if broker.broker_version == __version__:
        return CheckFinding("version", Severity.GOOD, f"{__version__}, here and there")
    return CheckFinding(
        "version",
        Severity.WARNING,
        f"{__version__} here, {broker.broker_version} there",
        "install the same version on both sides",
    )


def _kernel(broker: DescribeBrokerResponse) -> CheckFinding:
    if broker.kernel == "compiled":
        return CheckFinding("kernel", Severity.GOOD, "compiled")
    return CheckFinding(
        "kernel",
        Severity.WARNING,
        f"{broker.kernel}: {PRICE}",
        f"on the broker's machine: {REMEDY}",
    )


def _clock(probe: Probe) -> Iterator[CheckFinding]:
    apart, unsure = abs(probe.clock_difference_seconds), probe.uncertain_seconds
    direction = "ahead of" if probe.clock_difference_seconds > 0 else "behind"
    said = f"the broker's is {shown_span(apart)} {direction} this one, +/- {shown_span(unsure)}"
    if apart - unsure > CLOCK_PROBLEM_SECONDS:
        yield CheckFinding(
            "clock", Severity.PROBLEM, said, "let both machines take their time from NTP"
        )
    else:
        yield CheckFinding("clock", Severity.GOOD, said)
    if probe.broker.clock_caution:
        yield CheckFinding(
            "retention",
            Severity.WARNING,
            probe.broker.clock_caution,
            "put the broker's clock right if it is wrong; if it is right, only wait",
        )


def _disk(broker: DescribeBrokerResponse) -> CheckFinding:
    if broker.disk_bytes <= 0:
        return CheckFinding(
            "disk", Severity.WARNING, f"nothing is known of the disk of {broker.data_dir}"
        )
    share = broker.disk_free_bytes / broker.disk_bytes
    said = (
        f"{shown_size(broker.disk_free_bytes)} of {shown_size(broker.disk_bytes)} are free "
        f"({share:.0%}) at {broker.data_dir}"
    )
    if share >= DISK_WARNING_SHARE:
        return CheckFinding("disk", Severity.GOOD, said)
    verdict = Severity.PROBLEM if share < DISK_PROBLEM_SHARE else Severity.WARNING
    fix = "make room, or set retention.bytes; `horolog explain retention` says what keeps messages"
    return CheckFinding("disk", verdict, said, fix)


def _limits(broker: DescribeBrokerResponse) -> CheckFinding:
    said = (
        f"the broker may open {broker.files_limit} files; max.connections, max.open.files, the "
        f"HTTP port and a reserve take {broker.files_wanted}"
    )
    if not 0 <= broker.files_limit < broker.files_wanted:
        return CheckFinding("limits", Severity.GOOD, said)
    return CheckFinding(
        "limits",
        Severity.WARNING,
        f"{said}, so they were lowered",
        f"let it open more (`ulimit -n {2 * broker.files_wanted}`), or set the first two lower",
    )


def _kafka(broker: DescribeBrokerResponse) -> CheckFinding:
    if not broker.kafka_listen:
        return CheckFinding("kafka", Severity.GOOD, "no port for Kafka's clients")
    if not broker.kafka_open:
        return CheckFinding(
            "kafka",
            Severity.WARNING,
            f"no port for Kafka's clients: {broker.kafka_listen} was taken",
            "restart the broker with another address in kafka.listen, or with `off`",
        )
    said = f"Kafka's clients connect to {broker.kafka_listen}"
    if broker.kafka_advertised:
        said += f" and get its address as {broker.kafka_advertised} (advertised.listeners)"
    return CheckFinding("kafka", Severity.GOOD, said)


def _in_sync(broker: DescribeBrokerResponse) -> Iterator[CheckFinding]:
    """Yield problems with values of min.insync.replicas that are larger than the cluster."""
    most, wanted = broker.in_sync_most, broker.min_insync_replicas
    there = f"{most} {plural(most, 'broker')} that can be in sync"
    if wanted > most:
        yield CheckFinding(
            "acks",
            Severity.PROBLEM,
            "messages with acks=all are refused by all topics without a min.insync.replicas of "
            f"their own: the broker's is {wanted}, more than the {there}",
            f"set min.insync.replicas={most} at the broker and restart it, or add brokers",
        )
    if broker.unmet_topics:
        more = broker.unmet_topics > 1
        topics = f"{broker.unmet_topics} topics, such as" if more else "the topic"
        yield CheckFinding(
            "acks",
            Severity.PROBLEM,
            f"messages with acks=all are refused by {topics} {broker.unmet_topic}: "
            f"{'their' if more else 'its'} min.insync.replicas is more than the {there}",
            f"`horolog topic alter {broker.unmet_topic} --set min.insync.replicas={most}`"
            f"{', and the others alike' if more else ''}; or add brokers",
        )


def _files(stored: Iterator[Stored], data_dir: Path | None) -> Iterator[CheckFinding]:
    wrong = 0
    for found in stored:
        if found.error:
            wrong += 1
            place = shown_place(found.path, found.position)
            yield CheckFinding("files", Severity.PROBLEM, f"{place}: {found.rule}", found.advice)
    if not wrong:
        yield CheckFinding("files", Severity.GOOD, f"nothing is wrong in {data_dir}")


async def security_findings(servers: Servers, clock: Clock) -> list[CheckFinding]:
    """Return the findings about encryption and login at each address. Addresses without security,
    and those that do not answer, have none."""
    try:
        channel = servers.channel
    except SecurityError as error:
        return [CheckFinding("security", Severity.PROBLEM, str(error))]
    if channel is None:
        return []
    found: list[CheckFinding] = []
    for address in servers.addresses:
        try:
            connection = await connect(
                address,
                request_timeout_ms=5_000,
                encoding=kafka if servers.kafka else native,
                security=channel,
            )
        except ConnectionFailed:
            continue  # the check "server" reports that
        except (TlsFailed, SecurityError, CodedError) as error:
            found.append(_failed(error))
            continue
        try:
            found += _of(address, connection, servers, clock)
        finally:
            await connection.close()
    return found


def _failed(error: HorologError) -> CheckFinding:
    check = "encryption" if isinstance(error, TlsFailed) else "login"
    return CheckFinding(check, Severity.PROBLEM, " ".join(str(error).split()))


def _of(
    address: str, connection: ClientConnection, servers: Servers, clock: Clock
) -> Iterator[CheckFinding]:
    channel = servers.channel
    assert channel is not None
    tls = connection.tls
    if tls is not None:
        cipher = tls.cipher()
        name = cipher[0] if cipher else "no cipher"
        yield CheckFinding("encryption", Severity.GOOD, f"{address}: {tls.version()}, {name}")
        if channel.check_host_name:
            yield _certificate(address, tls.getpeercert() or {}, clock)
        else:
            yield CheckFinding(
                "certificate",
                Severity.WARNING,
                f"{address}: whose name is in the certificate is not looked at, so every owner of "
                "a certificate of the same CA can take its place",
                "let host names be checked",
            )
    elif channel.mechanism is not None:
        yield CheckFinding(
            "encryption",
            Severity.WARNING,
            f"{address}: everybody on the way can read and change what is sent",
            "use a port with TLS, and write tls:// or kafka+tls:// before the address",
        )
    if channel.mechanism is not None:
        who = f"as {channel.user} " if channel.user else ""
        yield CheckFinding("login", Severity.GOOD, f"{address}: let in {who}by {channel.mechanism}")
    yield from _password_file(channel.password)


def _certificate(address: str, found: Any, clock: Clock) -> CheckFinding:
    ends_s = ssl.cert_time_to_seconds(found["notAfter"])
    left_days = int((ends_s - clock.now_ms() / 1000) // 86_400)
    day = datetime.fromtimestamp(ends_s, UTC).date()
    said = f"{address}: its certificate is good until {day}, for {left_days} days"
    if left_days < EXPIRY_WARNING_DAYS:
        return CheckFinding(
            "certificate", Severity.WARNING, said, f"renew the certificate of {address}"
        )
    return CheckFinding("certificate", Severity.GOOD, said)


def _password_file(password: object) -> Iterator[CheckFinding]:
    if not isinstance(password, SecretFile):
        return
    if os.stat(password.path).st_mode & 0o077:
        yield CheckFinding(
            "password",
            Severity.WARNING,
            f"{password.path} can be read by others",
            f"chmod 600 {password.path}",
        )
