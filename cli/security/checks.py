"""What `horolog doctor` finds out about encryption and authentication."""

import os
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from ...client.cluster.connecting import connect
from ...client.cluster.connection import ClientConnection
from ...client.cluster.servers import Servers
from ...client.errors import ConnectionFailed
from ...client.security.errors import SecurityError, TlsFailed
from ...client.security.secret import SecretFile
from ...clock import Clock
from ...protocol.api.kafka import frames as kafka
from ...protocol.api.native import frames as native
from ...protocol.errors import CodedError, HorologError
from ..findings import CheckFinding, Severity

EXPIRY_WARNING_DAYS: Final = 21
"""Long enough before the end to renew it."""


async def security_findings(servers: Servers, clock: Clock) -> list[CheckFinding]:
    """What is to be said of the way to each address; nothing of plain ones without users, and of
    those that do not answer."""
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
            continue  # that is another check's matter
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
