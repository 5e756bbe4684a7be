"""The client of etcd's JSON gateway, at a real etcd (replication.md, section 5)."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from horolog.protocol.errors import InvalidConfig, StorageError
from horolog.server.replication.etcd.client import (
    ANSWER_MAX_BYTES,
    ATTEMPT_S,
    Access,
    EtcdClient,
    EtcdError,
    EtcdMisconfigured,
    EtcdUnreachable,
    Gateway,
    LeaseNotFound,
    Put,
)
from horolog.server.replication.etcd.election import Lane
from horolog.testing.etcd import EtcdProcess

T = TypeVar("T")
NOBODY = "http://127.0.0.1:9"


async def asked(access: Access, what: Callable[[Gateway], Awaitable[T]], s: float = 30.0) -> T:
    async with EtcdClient(access, s) as client:
        return await what(Gateway(client))


@asynccontextmanager
async def silence() -> AsyncIterator[str]:
    """A server that takes what comes and says nothing, at this URL."""
    writers = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    async with server:
        try:
            yield f"http://{host}:{port}"
        finally:
            for writer in writers:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()


async def test_transactions_and_leases(etcd: EtcdProcess) -> None:
    async def all_of_it(gateway: Gateway) -> None:
        lease_id, ttl_s = await gateway.grant(5)
        assert ttl_s == 5
        put = Put("/a/x", b"\x00\xff one", lease_id)
        made = await gateway.transact([("/a/x", 0)], [put], read="/a/")
        assert made.succeeded
        assert [(one.key, one.value, one.lease_id) for one in made.values] == [
            ("/a/x", put.value, lease_id)
        ]
        assert made.values[0].revision == made.revision
        again = await gateway.transact([("/a/x", 0)], [Put("/a/x", b"two")], read="/a/")
        assert not again.succeeded
        assert again.values == made.values
        read = await gateway.range("/a/")
        assert (read.values, read.revision) == (made.values, made.revision)
        assert await gateway.range("/b/") == type(read)(made.revision, ())
        assert await gateway.keep_alive(lease_id) == 5
        await gateway.revoke(lease_id)
        assert (await gateway.range("/a/")).values == ()
        # An answer without a TTL means that the lease is lost.
        assert await gateway.keep_alive(lease_id) is None
        with pytest.raises(LeaseNotFound):
            await gateway.revoke(lease_id)
        with pytest.raises(LeaseNotFound):
            await gateway.transact([], [put], read="/a/")

    await asked(Access((etcd.url,)), all_of_it)


async def test_an_endpoint_that_does_not_answer_is_passed_over(etcd: EtcdProcess) -> None:
    async with EtcdClient(Access((NOBODY, etcd.url))) as client:
        await Gateway(client).range("/a/")
    async with silence() as silent, EtcdClient(Access((silent, etcd.url)), 30.0) as client:
        await Gateway(client).range("/a/")
    with pytest.raises(EtcdUnreachable, match="cannot be reached"):
        await asked(Access((NOBODY,)), lambda gateway: gateway.range("/a/"))


async def test_silent_endpoints_keep_nobody_from_one_that_answers(etcd: EtcdProcess) -> None:
    """Two machines of five are dark: their endpoints take all the time that one request has."""
    async with silence() as one, silence() as other:
        access = Access((one, other, etcd.url))
        async with EtcdClient(access, 1.5 * ATTEMPT_S) as client:
            with pytest.raises(EtcdUnreachable):
                await Gateway(client).range("/a/")
            await Gateway(client).range("/a/")
            await Gateway(client).range("/a/")


async def test_a_silent_endpoint_costs_no_more_than_the_time_limit() -> None:
    async with silence() as silent:
        with pytest.raises(EtcdUnreachable, match=r"did not answer \S+ within 0\.3 s"):
            await asked(Access((silent,)), lambda it: it.range("/a/"), 0.3)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (b"200 OK", b"<html>a page</html>", EtcdMisconfigured),
        (b"200 OK", b"[" * 100_000, EtcdMisconfigured),
        (b"200 OK", b"{}", EtcdMisconfigured),
        (b"200 OK", b'{"header":{"revision":"x"}}', EtcdMisconfigured),
        (b"200 OK", b'{"header":{"revision":"1"},"kvs":[{"key":"/"}]}', EtcdMisconfigured),
        (b"404 Not Found", b"404 page not found\n", EtcdMisconfigured),
        (b"302 Found", b"", EtcdMisconfigured),
        (
            b"503 Service Unavailable",
            b'{"error":"etcdserver: no leader","code":14}',
            EtcdUnreachable,
        ),
        (
            b"400 Bad Request",
            b'{"error":"etcdserver: not capable","code":9}',
            EtcdUnreachable,
        ),
        (b"502 Bad Gateway", b"nginx", EtcdUnreachable),
        (
            b"403 Forbidden",
            b'{"error":"etcdserver: permission denied","code":7}',
            EtcdMisconfigured,
        ),
        (b"400 Bad Request", b'{"error":"etcdserver: duplicate key","code":3}', EtcdError),
    ],
)
async def test_answers_that_are_not_to_be(status: bytes, body: bytes, kind: type) -> None:
    answer = b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
    with pytest.raises(kind) as caught:
        await _at_server(answer)
    assert type(caught.value) is kind


async def test_an_answer_has_its_bounds() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (ANSWER_MAX_BYTES + 2)
    with pytest.raises(EtcdMisconfigured, match=f"more than {ANSWER_MAX_BYTES}"):
        await _at_server(head + b"x" * (ANSWER_MAX_BYTES + 2), 30.0)


async def _at_server(answer: bytes, within_s: float = 10.0) -> None:
    writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await asyncio.wait({asyncio.create_task(writer.drain())}, timeout=5)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    async with server:
        try:
            await asked(Access((f"http://{host}:{port}",)), lambda it: it.range("/a/"), within_s)
        finally:
            for writer in writers:
                writer.transport.abort()


async def test_the_gateway_is_off(place: Path, require_program: Callable[[str], str]) -> None:
    require_program("etcd")
    etcd = EtcdProcess(place / "etcd", gateway=False)
    etcd.start()
    try:
        with pytest.raises(EtcdMisconfigured, match="gateway is off"):
            await asked(Access((etcd.url,)), lambda gateway: gateway.range("/a/"))
    finally:
        etcd.close()


async def test_user_and_password(etcd: EtcdProcess) -> None:
    async def guard(gateway: Gateway) -> None:
        client = gateway._client
        await client.call("/v3/auth/user/add", {"name": "root", "password": "secret"})
        await client.call("/v3/auth/role/add", {"name": "root"})
        await client.call("/v3/auth/user/grant", {"user": "root", "role": "root"})
        await client.call("/v3/auth/user/add", {"name": "other", "password": "word"})
        await client.call("/v3/auth/enable", {})

    with pytest.raises(EtcdMisconfigured, match="not enabled"):
        await asked(Access((etcd.url,), user="root", password="secret"), lambda it: it.range("/"))
    await asked(Access((etcd.url,)), guard)
    with pytest.raises(EtcdMisconfigured, match="asks for a login"):
        await asked(Access((etcd.url,)), lambda gateway: gateway.range("/a/"))
    with pytest.raises(EtcdMisconfigured, match="authentication failed"):
        await asked(Access((etcd.url,), user="root", password="x"), lambda it: it.range("/a/"))
    with pytest.raises(EtcdMisconfigured, match="permission denied"):
        await asked(Access((etcd.url,), user="other", password="word"), lambda it: it.range("/a/"))
    async with EtcdClient(Access((etcd.url,), user="root", password="secret")) as client:
        gateway = Gateway(client)
        await gateway.range("/a/")
        client._token = "old.1"  # as after its time, or after etcd was started again
        await gateway.range("/a/")
        lease_id, _ = await gateway.grant(5)
        client._token = "old.2"
        assert await gateway.keep_alive(lease_id) == 5
        made = await gateway.transact([("/a/x", 0)], [Put("/a/x", b"", lease_id)], read="/a/")
        assert made.succeeded


def test_certificates(place: Path, require_program: Callable[[str], str]) -> None:
    require_program("etcd")
    openssl = require_program("openssl")
    ca, key = place / "cert.pem", place / "key.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *(
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=etcd",
                "-addext",
                "subjectAltName=IP:127.0.0.1",
            ),
            *("-keyout", str(key), "-out", str(ca)),
        ],
        check=True,
        capture_output=True,
    )
    options = ["--cert-file", str(ca), "--key-file", str(key), "--client-cert-auth"]
    etcd = EtcdProcess(place / "etcd", tls=[*options, "--trusted-ca-file", str(ca)], scheme="https")
    etcd.start()
    try:
        asyncio.run(_with_certificates(etcd.url, str(ca), str(key)))
    finally:
        etcd.close()


async def _with_certificates(url: str, ca: str, key: str) -> None:
    with pytest.raises(EtcdMisconfigured, match="TLS failed"):
        await asked(Access((url,)), lambda gateway: gateway.range("/a/"))
    with pytest.raises(EtcdError):  # a certificate is asked for
        await asked(Access((url,), ca=ca), lambda gateway: gateway.range("/a/"))
    await asked(Access((url,), ca, ca, key), lambda gateway: gateway.range("/a/"))
    with pytest.raises(InvalidConfig, match=r"cluster\.etcd\.ca"):
        EtcdClient(Access((url,), ca=key))


async def test_a_disk_that_fails_ends_no_request_behind() -> None:
    """An epoch that cannot be stored is a failure of its request, and is asked for again."""
    failed: list[Exception] = []
    asked = asyncio.Event()

    async def store() -> None:
        raise StorageError("the identity cannot be written")

    async def ask() -> None:
        asked.set()

    lane = Lane(failed.append, time.monotonic, 10.0)
    lane.ask(store)
    lane.ask(ask)
    async with asyncio.timeout(10):
        await asked.wait()
    await lane.stop()
    (error,) = failed
    assert isinstance(error, StorageError)
