"""TLS on real sockets: handshakes that fail, are slow or none, certificates that change."""

import asyncio
import contextlib
import os
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest

from horolog import Admin, TlsFailed
from horolog.config.address import split_address
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.topics.metadata import METADATA, MetadataRequest
from horolog.protocol.errors import IllegalSaslState, InvalidConfig
from horolog.server.broker import Broker
from horolog.server.network import tls_files
from horolog.testing.access import log_in
from horolog.testing.broker import running_broker
from horolog.testing.logs import RecordedEvents
from horolog.testing.requests import create_topic, fetch, message_set, produce, result
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

from .conftest import PASSWORD, Authority, Guarded, Pair, openssl, openssl_client

pytestmark = pytest.mark.both_loops


def recorded(broker: Broker) -> RecordedEvents:
    """What happens to connections from now on."""
    events = RecordedEvents()
    broker._connections._observe = events
    broker.security._observe = events
    return events


async def test_large_answers_come_whole(guarded: Guarded, authority: Authority) -> None:
    """Those in files too, which go by sendfile where nothing is encrypted."""
    value = os.urandom(900_000)
    async with (
        guarded(retention_ms=-1) as broker,
        wire(broker.addresses.native, tls=authority.trusting()) as client,
    ):
        await log_in(client, "alice", PASSWORD)
        await client.call(create_topic("t"))
        sets = [message_set(1_500_000_000_000 + number, value=value) for number in range(20)]
        for each in sets:
            assert result(await client.call(produce("t", each))).error_code == 0
        wanted = fetch("t", (0, 0), partition_max_bytes=1 << 26)
        client.send_together(*[wanted] * 3)
        for _ in range(3):
            _, answer = await client.receive()
            records = bytes(result(answer).records)
            assert len(records) == sum(map(len, sets))
            assert records.count(value) == 20


async def test_a_client_that_does_not_read_is_bounded(
    guarded: Guarded, authority: Authority
) -> None:
    async with (
        guarded(connection_buffer_bytes=1 << 20, request_deadline_ms=500) as broker,
        wire(broker.addresses.native, tls=authority.trusting()) as client,
    ):
        await log_in(client, "alice", PASSWORD)
        await client.call(create_topic("t"))
        await client.call(produce("t", message_set(1, value=bytes(900_000))))
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        events = recorded(broker)
        for _ in range(100):
            client.send_together(fetch("t", (0, 0), partition_max_bytes=1 << 26))
        await until(lambda: any(event == "connection_dropped" for event, _ in events.seen))
        (dropped,) = [each for event, each in events.seen if event == "connection_dropped"]
        assert dropped["reason"] == "slow_reader"


@pytest.mark.parametrize("cut", [1, 5, 50, 200])
async def test_handshakes_that_stop_are_closed(
    guarded: Guarded, authority: Authority, cut: int
) -> None:
    async with guarded(authentication_deadline_ms=300) as broker:
        events = recorded(broker)
        hello = client_hello(authority)
        async with wire(broker.addresses.native) as client:
            client.send_bytes(hello[:cut])
            assert await client.at_end()
        await until(lambda: broker.unauthenticated() == 0)
        assert broker.figures.tls_failures == {"handshake_late": 1}
        assert broker.connections() == 0
        assert events.seen == []


def client_hello(authority: Authority) -> bytes:
    outgoing = ssl.MemoryBIO()
    client = authority.trusting().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def test_a_handshake_that_comes_byte_by_byte(guarded: Guarded, authority: Authority) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = authority.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
    async with guarded() as broker:
        host, port = split_address(broker.addresses.native)
        reader, writer = await asyncio.open_connection(host, port)
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0)
                incoming.write(await reader.read(1 << 16))
        writer.write(outgoing.read())
        client.write(native.encode_request(METADATA, 0, 9, "c", MetadataRequest()))
        writer.write(outgoing.read())
        answer = b""
        while not answer:
            incoming.write(await reader.read(1 << 16))
            try:
                answer = client.read(1 << 16)
            except ssl.SSLWantReadError:
                continue
        head, _ = native.open_response(answer[4:])
        assert (head.correlation_id, head.error_code) == (9, IllegalSaslState.code)
        writer.close()


@pytest.mark.parametrize(
    "hello",
    [
        b"\x16\x03\x01\xff\xff" + b"x" * 400,
        b"\x16\x03\x01\x00\x05hello",
        b"\x16" * 1000,
        b"\x16\x03\x01" + bytes(70_000),
    ],
    ids=["record-too-long", "no-hello", "x16", "zeros"],
)
async def test_what_is_no_handshake_is_closed(guarded: Guarded, hello: bytes) -> None:
    async with guarded(authentication_deadline_ms=500) as broker:
        async with wire(broker.addresses.native) as client:
            client.send_bytes(hello)
            async with asyncio.timeout(30):
                with contextlib.suppress(ConnectionError):
                    await client.reader.read()  # perhaps an alert
        await until(lambda: broker.connections() == 0)
        assert sum(broker.figures.tls_failures.values()) == 1


async def test_plaintext_on_an_encrypted_port(guarded: Guarded) -> None:
    async with guarded() as broker:
        async with wire(broker.addresses.native) as client:
            client.send(METADATA, 0, MetadataRequest())
            with pytest.raises(IllegalSaslState, match=r"takes encrypted connections only.*tls://"):
                await client.receive()
            assert await client.at_end()
        async with wire(str(broker.addresses.kafka)) as client:
            client.send_bytes(b"\0\0\0\x0e\0\x12\0\0\0\0\0\1\0\4test")
            assert await client.at_end()
        async with wire(str(broker.addresses.http)) as client:
            client.send_bytes(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = (await client.reader.read()).decode()
            assert answer.startswith("HTTP/1.1 400 ")
            assert "https://" in answer
        assert broker.figures.tls_failures == {"not_tls": 3}


async def test_tls_on_a_plaintext_port(tmp_path: Path, authority: Authority) -> None:
    async with running_broker(tmp_path, http_listen="off") as broker:
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
            await Wire.open(broker.addresses.native, tls=authority.trusting())
        with pytest.raises(TlsFailed, match="If it is a plaintext port"):
            async with Admin(f"tls://{broker.addresses.native}") as admin:
                await admin.list_topics()


async def test_half_open_handshakes_are_bounded(guarded: Guarded, authority: Authority) -> None:
    """Of 500 at a time 50 have a place, however often they come; the others cost nothing."""
    hello = client_hello(authority)[:100]
    async with guarded(connections_unauthenticated_max=50, max_connections_per_ip=400) as broker:
        inside = await Wire.open(broker.addresses.native, tls=authority.trusting())
        await log_in(inside, "alice", PASSWORD)
        before = resident_bytes()
        for _ in range(4):
            clients = [await Wire.open(broker.addresses.native) for _ in range(500)]
            for client in clients:
                client.send_bytes(hello)
            await inside.call(MetadataRequest())
            assert broker.unauthenticated() <= 50
            for client in clients:
                client.close()
            await until(lambda: broker.unauthenticated() == 0)
        assert resident_bytes() - before < 64 << 20
        assert broker.figures.connections_refused["unauthenticated"] >= 4 * 450
        inside.close()


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("minimum", ["1.2", "1.3"])
async def test_the_oldest_version(guarded: Guarded, authority: Authority, minimum: str) -> None:
    old = authority.trusting()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with guarded(tls_min_version=minimum) as broker:
        if minimum == "1.3":
            with pytest.raises(ssl.SSLError):
                await Wire.open(broker.addresses.native, tls=old)
        else:
            async with wire(broker.addresses.native, tls=old) as client:
                await log_in(client, "alice", PASSWORD)
        async with wire(broker.addresses.native, tls=authority.trusting()) as client:
            await log_in(client, "alice", PASSWORD)


async def asked(broker: Broker, tls: ssl.SSLContext) -> None:
    """Connect and ask: with TLS 1.3 a client learns only when it reads that its certificate is not
    taken."""
    async with wire(broker.addresses.native, tls=tls) as client:
        await client.call(MetadataRequest())


class TestClientCertificates:
    async def test_they_are_a_login(self, guarded: Guarded, authority: Authority) -> None:
        mine = authority.issue("reader", "/O=Example, Inc/OU=readers/CN=alice")
        async with guarded(tls_client_auth="required", tls_client_ca=authority.cert) as broker:
            async with wire(broker.addresses.native, tls=authority.trusting(mine)) as client:
                assert (await client.call(MetadataRequest())).brokers
                (open_,) = broker._connections._open
                assert open_._caller.principal == "User:CN=alice,OU=readers,O=Example\\, Inc"
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await asked(broker, authority.trusting())

    async def test_of_another_root(
        self, guarded: Guarded, authority: Authority, tmp_path: Path
    ) -> None:
        other = Authority(tmp_path / "other", "other").issue("mallory", "/CN=alice")
        async with guarded(tls_client_auth="requested", tls_client_ca=authority.cert) as broker:
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await asked(broker, authority.trusting(other))
            async with wire(broker.addresses.native, tls=authority.trusting()) as client:
                with pytest.raises(IllegalSaslState):
                    await client.call(MetadataRequest())

    async def test_where_sasl_is_asked_for(self, guarded: Guarded, authority: Authority) -> None:
        """SASL_SSL:// wants a user all the same."""
        mine = authority.issue("writer", "/CN=writer")
        async with guarded(
            listen="SASL_SSL://127.0.0.1:0",
            tls_client_auth="required",
            tls_client_ca=authority.cert,
        ) as broker:
            async with wire(broker.addresses.native, tls=authority.trusting(mine)) as client:
                with pytest.raises(IllegalSaslState):
                    await client.call(MetadataRequest())
            async with wire(broker.addresses.native, tls=authority.trusting(mine)) as client:
                assert (await log_in(client, "alice", PASSWORD)).principal == "User:alice"


class TestChangedFiles:
    @pytest.fixture
    def files(self, tmp_path: Path, pair: Pair) -> Pair:
        """Copies that the tests change."""
        return Pair(
            Path(shutil.copy(pair.cert, tmp_path / "cert.pem")),
            Path(shutil.copy(pair.key, tmp_path / "key.pem")),
        )

    async def test_a_new_certificate_is_shown(
        self,
        guarded: Guarded,
        authority: Authority,
        files: Pair,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(tls_files, "LOOK_SECONDS", 0.05)
        other = Authority(tmp_path / "next", "next")
        new = other.issue("broker", days=30)
        async with guarded(tls_cert=files.cert, tls_key=files.key) as broker:
            assert broker.security.tls_files is not None
            assert 0 < (broker.certificate_days() or 0) <= 1
            old = await Wire.open(broker.addresses.native, tls=authority.trusting())
            await log_in(old, "alice", PASSWORD)
            context = broker.security.tls_files.context
            # The key first: as long as the two do not fit, the old ones stay.
            os.replace(new.key, files.key)
            os.replace(new.cert, files.cert)
            await until(lambda: broker.certificate_days() > 20)  # type: ignore[operator]
            assert broker.security.tls_files.context is not context
            async with wire(broker.addresses.native, tls=other.trusting()) as client:
                await log_in(client, "alice", PASSWORD)
            with pytest.raises(ssl.SSLCertVerificationError):
                await Wire.open(broker.addresses.native, tls=authority.trusting())
            await old.call(MetadataRequest())
            old.close()

    async def test_broken_files_are_told_and_change_nothing(
        self, guarded: Guarded, authority: Authority, files: Pair
    ) -> None:
        async with guarded(tls_cert=files.cert, tls_key=files.key) as broker:
            files_of_broker = broker.security.tls_files
            assert files_of_broker is not None
            events = RecordedEvents()
            files_of_broker._observe = events
            files.cert.write_text("broken")
            broker.read_certificates_again()
            ((event, fields),) = events.seen
            assert event == "tls_files_refused"
            assert "tls.cert" in str(fields["cause"])
            async with wire(broker.addresses.native, tls=authority.trusting()) as client:
                await log_in(client, "alice", PASSWORD)

    async def test_an_expired_certificate_is_used_and_told(
        self, guarded: Guarded, files: Pair
    ) -> None:
        """It is the clients' business; the metric says how late it is."""
        folder = files.cert.parent
        request, settings = folder / "late.csr", folder / "ca.conf"
        settings.write_text(
            f"[ca]\ndefault_ca=own\n[own]\nnew_certs_dir={folder}\ndatabase={folder}/index\n"
            f"serial={folder}/serial\ndefault_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n"
        )
        (folder / "index").touch()
        (folder / "serial").write_text("01\n")
        openssl("req", "-new", "-key", files.key, "-subj", "/CN=late", "-out", request)
        openssl(
            *("ca", "-batch", "-config", settings, "-selfsign", "-keyfile", files.key),
            *("-in", request, "-out", files.cert, "-notext"),
            *("-startdate", "20200101000000Z", "-enddate", "20200102000000Z"),
        )
        async with guarded(tls_cert=files.cert, tls_key=files.key) as broker:
            assert (broker.certificate_days() or 0) < -365


class TestBadFiles:
    async def refused(self, guarded: Guarded, **settings: Any) -> str:
        with pytest.raises(InvalidConfig) as error:
            async with guarded(**settings):
                pass
        return error.value.message

    async def test_missing(self, guarded: Guarded, tmp_path: Path) -> None:
        text = await self.refused(guarded, tls_cert=tmp_path / "none.pem", tls_key="")
        assert "tls.cert" in text
        assert "No such file" in text

    async def test_the_key_of_another(self, guarded: Guarded, authority: Authority) -> None:
        text = await self.refused(guarded, tls_key=authority.issue("another").key)
        assert "KEY_VALUES_MISMATCH" in text

    async def test_an_encrypted_key(
        self, guarded: Guarded, authority: Authority, pair: Pair, tmp_path: Path
    ) -> None:
        locked, password = tmp_path / "locked.pem", tmp_path / "password"
        openssl(
            *("pkcs8", "-topk8", "-in", pair.key, "-out", locked, "-passout", "pass:open-sesame-9")
        )
        assert "tls.key.password.file" in await self.refused(guarded, tls_key=locked)
        password.write_text("wrong\n")
        text = await self.refused(guarded, tls_key=locked, tls_key_password_file=password)
        assert "tls.key" in text
        assert "wrong" not in text
        password.write_text("open-sesame-9\nsecond line\n")
        async with (
            guarded(tls_key=locked, tls_key_password_file=password) as broker,
            wire(broker.addresses.native, tls=authority.trusting()) as client,
        ):
            await log_in(client, "alice", PASSWORD)


async def test_certificates_without_end_are_refused(
    guarded: Guarded, authority: Authority, tmp_path: Path
) -> None:
    """OpenSSL takes 100 KiB of them."""
    mine = authority.issue("giant", "/CN=giant")
    many = tmp_path / "many.pem"
    many.write_text(mine.cert.read_text() * 400)
    async with guarded(tls_client_auth="required", tls_client_ca=authority.cert) as broker:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await asked(broker, authority.trusting(Pair(many, mine.key)))
        await until(lambda: broker.connections() == 0)
        assert sum(broker.figures.tls_failures.values()) == 1
        async with wire(broker.addresses.native, tls=authority.trusting(mine)) as client:
            await client.call(MetadataRequest())


async def test_renegotiation_is_refused(guarded: Guarded) -> None:
    """A client of TLS 1.2 that asks for handshakes one after the other, to keep a broker busy."""
    async with guarded() as broker:
        process = await openssl_client(broker.addresses.native, "-tls1_2")
        assert process.stdin is not None
        await until(lambda: broker.connections() == 1)
        process.stdin.write(b"R\n")  # s_client then asks for a new handshake
        said, _ = await process.communicate()
        assert b"RENEGOTIATING" in said
        assert b"no renegotiation" in said
        assert not broker.figures.tls_failures
