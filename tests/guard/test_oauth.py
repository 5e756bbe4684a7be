"""OAUTHBEARER at a broker (RFC 7628, KIP-255, KIP-768): both protocols, the HTTP port, the keys."""

import asyncio
import io
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.security.authenticate import AuthenticateRequest
from horolog.protocol.api.security.sasl_authenticate import SaslAuthenticateRequest
from horolog.protocol.api.security.sasl_handshake import SaslHandshakeRequest
from horolog.protocol.api.topics.metadata import METADATA, MetadataRequest
from horolog.protocol.errors import (
    IllegalSaslState,
    InvalidConfig,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from horolog.protocol.sasl.mechanisms import OAuthBearerClient
from horolog.server.broker import Broker
from horolog.server.security import logins, tokens
from horolog.server.web.server import HttpState
from horolog.testing.access import log_in, log_in_to_kafka
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.issuer import AUDIENCE, ISSUER, Issuer, token_settings
from horolog.testing.logs import RecordedEvents
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

from .conftest import PASSWORD, Authority, Guarded, add_users, login_waits

OAUTHBEARER = "OAUTHBEARER"
CHALLENGE = b'{"status":"invalid_token"}'

Open = Callable[..., Awaitable[Broker]]


FAILED_SECONDS = 0.1


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many logins fail here; how long each waits is tested with others in `test_gate`."""
    monkeypatch.setattr(logins, "FAILED_SECONDS", FAILED_SECONDS)
    monkeypatch.setattr(logins, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(logins, "LONGEST_SECONDS", 0.3)


CLOCK = ManualClock()
"""Of the issuer and of the broker: tokens are taken in the moment in which they are made."""


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer(CLOCK)


@pytest.fixture
def settings() -> dict[str, object]:
    return {}


@pytest.fixture
async def broker(
    tmp_path: Path, issuer: Issuer, settings: dict[str, object]
) -> AsyncIterator[Broker]:
    given: dict[str, Any] = {
        "kafka_listen": "127.0.0.1:0",
        "authentication": "required",
        "allow_plaintext": True,
        **token_settings(issuer.write(tmp_path / "keys.json")),
        **settings,
    }
    async with running_broker(tmp_path / "data", CLOCK, **given) as started:
        add_users(started, alice=PASSWORD)
        yield started


def kafka_wire(broker: Broker) -> Any:
    assert broker.addresses.kafka is not None
    return wire(broker.addresses.kafka, kafka)


async def test_a_login_by_either_protocol(broker: Broker, issuer: Issuer) -> None:
    async with wire(broker.addresses.native) as client:
        answer = await log_in(client, "", issuer.token("carol"), OAUTHBEARER)
        assert (answer.principal, answer.auth_bytes) == ("User:carol", b"")
        assert answer.session_lifetime_ms == 3_600_000
        assert (await client.call(MetadataRequest())).brokers
    async with kafka_wire(broker) as client:
        answer = await log_in_to_kafka(client, "", issuer.token("carol"), OAUTHBEARER)
        assert answer.session_lifetime_ms == 3_600_000
        assert (await client.call(MetadataRequest(topics=[]))).brokers
    assert broker.figures.logins == {(OAUTHBEARER, "done"): 2}


async def test_a_token_that_is_refused_is_answered_as_kafka_does(
    broker: Broker, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON first; when the client has answered that, the error, and the end."""
    waits = login_waits(broker, monkeypatch)
    events = RecordedEvents()
    broker.security.logins._observe = events
    bad = issuer.token(aud="another")
    async with kafka_wire(broker) as client:
        await client.call(SaslHandshakeRequest(mechanism=OAUTHBEARER))
        first = SaslAuthenticateRequest(auth_bytes=OAuthBearerClient(bad).first())
        answer = await client.call(first)
        assert sum(waits) == FAILED_SECONDS
        assert (answer.error_code, answer.auth_bytes) == (0, CHALLENGE)
        assert answer.session_lifetime_ms == 0
        answer = await client.call(SaslAuthenticateRequest(auth_bytes=b"\x01"))
        assert (answer.error_code, answer.error_message) == (58, CHALLENGE.decode())
        assert await client.at_end()
    async with wire(broker.addresses.native) as client:
        with pytest.raises(SaslAuthenticationFailed) as refused:
            await log_in(client, "", bad, OAUTHBEARER)
        assert refused.value.message == CHALLENGE.decode()
        assert await client.at_end()
    assert broker.figures.logins == {(OAUTHBEARER, "failed"): 2}
    assert [event for event, _ in events.seen] == ["login_failed"] * 2
    assert "aud is not what is expected" in str(events.seen[0][1]["cause"])
    assert all(part not in str(events.seen) for part in bad.split("."))


async def test_who_does_not_give_up_is_closed(broker: Broker, issuer: Issuer) -> None:
    """Not even a good token counts behind one that was refused."""
    good, bad = (OAuthBearerClient(issuer.token(sub=name)).first() for name in ("a", ""))
    async with kafka_wire(broker) as client:
        await client.call(SaslHandshakeRequest(mechanism=OAUTHBEARER))
        assert (await client.call(SaslAuthenticateRequest(auth_bytes=bad))).error_code == 0
        assert (await client.call(SaslAuthenticateRequest(auth_bytes=good))).error_code == 58
        assert await client.at_end()
    async with wire(broker.addresses.native) as client:
        await client.call(AuthenticateRequest(mechanism=OAUTHBEARER, auth_bytes=bad))
        with pytest.raises(IllegalSaslState):
            await client.call(MetadataRequest())
        assert await client.at_end()


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        b"\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,a=root,\x01auth=Bearer {token}\x01\x01",
    ],
)
async def test_messages_that_are_none(broker: Broker, issuer: Issuer, content: bytes) -> None:
    sent = content.replace(b"{token}", issuer.token().encode())
    async with kafka_wire(broker) as client:
        await client.call(SaslHandshakeRequest(mechanism=OAUTHBEARER))
        assert (await client.call(SaslAuthenticateRequest(auth_bytes=sent))).error_code == 58
        assert await client.at_end()


async def test_messages_without_a_head(broker: Broker, issuer: Issuer) -> None:
    for token in (issuer.token(), issuer.token("")):
        async with kafka_wire(broker) as client:
            await client.call(SaslHandshakeRequest(mechanism=OAUTHBEARER), 0)
            said = OAuthBearerClient(token).first()
            client.send_bytes(len(said).to_bytes(4, "big") + said)
            answer = await client.frame()
            if not answer:
                assert (await client.call(MetadataRequest(topics=[]))).brokers
            else:
                assert bytes(answer) == CHALLENGE
                client.send_bytes(b"\0\0\0\1\1")
                assert await client.at_end()


async def test_tokens_slow_an_address_as_passwords_do(
    broker: Broker, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = login_waits(broker, monkeypatch)
    for _ in range(4):
        broker.security.logins._throttle.failed("127.0.0.1")
    async with wire(broker.addresses.native) as client:
        await log_in(client, "", issuer.token(), OAUTHBEARER)
    assert sum(waits) == 2 * logins.FIRST_SECONDS


class TestSessions:
    """KIP-368: a session ends with its token, or before."""

    async def test_it_ends_with_the_token(self, broker: Broker, issuer: Issuer) -> None:
        async with kafka_wire(broker) as lazy, kafka_wire(broker) as client:
            for each in (lazy, client):
                answer = await log_in_to_kafka(each, "", issuer.token(seconds=1.2), OAUTHBEARER)
                assert answer.session_lifetime_ms == pytest.approx(1200, abs=1)
            for _ in range(4):
                await asyncio.sleep(0.4)
                await log_in_to_kafka(client, "", issuer.token(seconds=1.2), OAUTHBEARER)
                await client.call(MetadataRequest(topics=[]))
            lazy.send(METADATA, 7, MetadataRequest(topics=[]))
            assert await lazy.at_end()

    async def test_it_cannot_become_anothers(self, broker: Broker, issuer: Issuer) -> None:
        async with wire(broker.addresses.native) as client:
            await log_in(client, "", issuer.token("alice"), OAUTHBEARER)
            with pytest.raises(SaslAuthenticationFailed, match="as another's"):
                await log_in(client, "", issuer.token("bob"), OAUTHBEARER)
            assert await client.at_end()

    async def test_it_cannot_become_one_of_a_password(self, broker: Broker, issuer: Issuer) -> None:
        """Its end would be lost."""
        async with wire(broker.addresses.native) as client:
            await log_in(client, "", issuer.token("alice"), OAUTHBEARER)
            with pytest.raises(IllegalSaslState, match="cannot go on with"):
                await log_in(client, "alice", PASSWORD)

    @pytest.mark.parametrize(("token_s", "lifetime_ms"), [(1000, 2000), (1.5, 1500)])
    @pytest.mark.parametrize("settings", [{"connections_max_reauth_ms": 2000}])
    async def test_the_shorter_time_counts(
        self, broker: Broker, issuer: Issuer, token_s: float, lifetime_ms: int
    ) -> None:
        async with wire(broker.addresses.native) as client:
            answer = await log_in(client, "", issuer.token(seconds=token_s), OAUTHBEARER)
            assert answer.session_lifetime_ms == pytest.approx(lifetime_ms, abs=1)


class TestWithoutTls:
    @pytest.mark.parametrize("settings", [{"allow_plaintext": False}])
    async def test_it_is_not_offered(self, broker: Broker, issuer: Issuer) -> None:
        async with wire(broker.addresses.native) as client:
            with pytest.raises(UnsupportedSaslMechanism):
                await log_in(client, "", issuer.token(), OAUTHBEARER)


class TestHttp:
    @pytest.mark.parametrize("settings", [{"authorization": "on", "http_open_paths": "/healthz"}])
    async def test_a_bearer_token(self, broker: Broker, issuer: Issuer) -> None:
        """The same checks, and the same rights."""
        await until(lambda: broker._state() is HttpState.READY)
        url = f"http://{broker.addresses.http}"

        async def status(path: str, token: str, scheme: str = "Bearer") -> int:
            headers = {"Authorization": f"{scheme} {token}"}
            async with session.get(url + path, headers=headers) as answer:
                text = await answer.text()
                assert all(part not in text for part in token.split("."))
                if answer.status == 401:
                    asked = answer.headers.getall("WWW-Authenticate")
                    assert [each.split()[0] for each in asked] == ["Basic", "Bearer"]
                return answer.status

        async with aiohttp.ClientSession() as session:
            assert await status("/page/topics", issuer.token()) == 200
            assert await status("/page/topics", issuer.token(), "bearer") == 200
            assert await status("/metrics", issuer.token()) == 403
            assert await status("/page/topics", issuer.token(seconds=-40)) == 401
            assert await status("/page/topics", issuer.token()[:-9]) == 401
            assert await status("/page/topics", "x") == 401
        assert broker.figures.logins == {("HTTP", "done"): 3, ("HTTP", "failed"): 3}

    @pytest.mark.parametrize("settings", [{"sasl_enabled_mechanisms": "SCRAM-SHA-512"}])
    async def test_where_tokens_are_off(self, broker: Broker, issuer: Issuer) -> None:
        await until(lambda: broker._state() is HttpState.READY)
        headers = {"Authorization": f"Bearer {issuer.token()}"}
        async with (
            aiohttp.ClientSession(f"http://{broker.addresses.http}") as session,
            session.get("/page/topics", headers=headers) as answer,
        ):
            assert answer.status == 401
            assert len(answer.headers.getall("WWW-Authenticate")) == 1


class TestFile:
    async def test_it_is_read_again(
        self, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A broken one is told, and changes nothing; an unknown key has it read at once."""
        source = broker.security._token_keys
        assert source is not None
        events = RecordedEvents()
        source._observe = events
        path = tmp_path / "keys.json"
        before = path.read_bytes()
        path.write_bytes(b"{}")
        broker.read_certificates_again()
        await until(lambda: bool(events.seen))
        ((event, fields),) = events.seen
        assert (event, fields["hint"]) == ("token_keys_refused", "the old ones stay in use")
        assert "not JSON of the form" in str(fields["cause"])
        assert len(source.keys) == 1
        path.write_bytes(before)
        source._read_at = float("-inf")
        new = Issuer(CLOCK)
        new.add("second")
        new.write(path)
        async with wire(broker.addresses.native) as client:
            await log_in(client, "", new.token(), OAUTHBEARER)
        # Looked at by and by, too.
        third = Issuer(CLOCK)
        third.add("third")
        source.stop()
        monkeypatch.setattr(tokens, "LOOK_SECONDS", 0.05)
        source.start(asyncio.get_running_loop())
        third.write(path)
        await until(lambda: source.keys.find("third", "ES256") is not None)


class KeyServer:
    """Gives a key set by HTTP, or something else."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Callable[[], Awaitable[web.StreamResponse]] = self.nothing
        self.url = ""

    async def nothing(self) -> web.StreamResponse:
        return web.Response(status=503)

    def give(self, issuer: Issuer) -> None:
        async def answer() -> web.StreamResponse:
            return web.Response(body=issuer.key_set())

        self.answer = answer

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked += 1
        return await self.answer()


@pytest.fixture
async def key_server() -> AsyncIterator[KeyServer]:
    found = KeyServer()
    runner = web.ServerRunner(web.Server(found.handle), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    found.url = f"http://{host}:{port}/keys"
    yield found
    await runner.cleanup()


class TestUrl:
    """The keys of a URL: at the start, in turns, and for a key that is not known."""

    @pytest.fixture
    def settings(self, key_server: KeyServer) -> dict[str, object]:
        return {"sasl_oauthbearer_jwks_endpoint_url": key_server.url}

    def source(self, broker: Broker) -> tokens.KeySource:
        assert broker.security._token_keys is not None
        return broker.security._token_keys

    async def test_a_server_that_comes_later(
        self, broker: Broker, key_server: KeyServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The broker starts without keys, takes no token, and has them as soon as they are there.
        What then breaks changes nothing."""
        issuer, source = Issuer(CLOCK), self.source(broker)
        await until(lambda: key_server.asked == 1)
        async with wire(broker.addresses.native) as client:
            with pytest.raises(SaslAuthenticationFailed):
                await log_in(client, "", issuer.token(), OAUTHBEARER)
        key_server.give(issuer)
        source._read_at = float("-inf")
        async with wire(broker.addresses.native) as client:
            await log_in(client, "", issuer.token(), OAUTHBEARER)
        key_server.answer = key_server.nothing
        events = RecordedEvents()
        source._observe = events
        source.read_again()
        await until(lambda: bool(events.seen))
        assert events.seen[0][0] == "token_keys_refused"
        assert events.seen[0][1]["cause"] == "it answers with status 503"
        async with wire(broker.addresses.native) as client:
            await log_in(client, "", issuer.token(), OAUTHBEARER)

    async def test_unknown_keys_ask_rarely(self, broker: Broker, key_server: KeyServer) -> None:
        """However many come: their server is asked once in ten seconds, and logins that wait for
        the same answer wait together."""
        issuer, source = Issuer(CLOCK), self.source(broker)
        key_server.give(issuer)
        source.read_again()
        await until(lambda: len(source.keys) == 1)
        checks = broker.security.logins._tokens
        assert checks is not None
        source._read_at = float("-inf")
        before = key_server.asked
        for number in range(3):
            issuer.add(f"unknown-{number}")
        key_server.give(Issuer(CLOCK))
        results = await asyncio.gather(
            *(checks.verified(issuer.token()) for _ in range(50)), return_exceptions=True
        )
        assert {str(each).split(" among")[0] for each in results} == {
            "there is no key 'unknown-2' for ES256"
        }
        assert key_server.asked == before + 1
        key_server.give(issuer)
        source._read_at = float("-inf")
        assert (await checks.verified(issuer.token("zoe"))).name == "zoe"

    async def test_answers_that_are_none(
        self, tmp_path: Path, key_server: KeyServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tokens, "REST_SECONDS", 100.0)
        events = RecordedEvents()
        source = tokens.KeySource(key_server.url, 3600.0, events)
        released = asyncio.Event()

        async def never() -> web.StreamResponse:
            await released.wait()
            return web.Response()

        async def elsewhere() -> web.StreamResponse:
            return web.Response(status=302, headers={"Location": "/other"})

        async def large() -> web.StreamResponse:
            return web.Response(body=b" " * 5_000_000)

        async def no_keys() -> web.StreamResponse:
            return web.Response(text="<html>")

        expected = {
            never: "there was no answer in 0.3 s",
            elsewhere: "it answers with status 302",
            large: "it has more than 262144 bytes",
            no_keys: "it is not JSON of the form",
        }
        key_server.answer = no_keys
        source.start(asyncio.get_running_loop())
        await until(lambda: bool(events.seen) and source._reading is None)
        for answer, cause in expected.items():
            monkeypatch.setattr(tokens, "FETCH_SECONDS", 0.3 if answer is never else 30.0)
            key_server.answer = answer
            events.seen.clear()
            source.read_again()
            await until(lambda: bool(events.seen))
            assert cause in str(events.seen[0][1]["cause"])
            assert events.seen[0][1]["hint"] == "no token is taken without any"
            await until(lambda: source._reading is None)
        released.set()
        source.stop()

    async def test_in_turns(self, key_server: KeyServer) -> None:
        issuer = Issuer(CLOCK)
        key_server.give(issuer)
        source = tokens.KeySource(key_server.url, 0.05, RecordedEvents())
        source.start(asyncio.get_running_loop())
        await until(lambda: len(source.keys) == 1)
        issuer.add("next")
        await until(lambda: len(source.keys) == 2)
        source.stop()


async def test_keys_by_tls(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's certificate is checked, against the system's roots or SSL_CERT_FILE."""
    pair = authority.issue("keys")
    issuer = Issuer(CLOCK)

    async def handle(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=issuer.key_set())

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}/keys"
    events = RecordedEvents()
    for trusted, keys in ((False, 0), (True, 1)):
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
        events.seen.clear()
        source = tokens.KeySource(url, 3600.0, events)
        source.start(asyncio.get_running_loop())
        await until(lambda: bool(events.seen))
        assert len(source.keys) == keys
        if not trusted:
            assert "CERTIFICATE_VERIFY_FAILED" in str(events.seen[0][1]["cause"])
        source.stop()
    await runner.cleanup()


class TestSettings:
    async def refused(self, tmp_path: Path, **settings: Any) -> str:
        with pytest.raises(InvalidConfig) as error:
            async with running_broker(tmp_path / "data", **settings):
                pass
        return error.value.message

    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("", "needs sasl.oauthbearer.jwks.endpoint.url"),
            ("http://keys.example/", "use https://, or set allow.plaintext=true"),
            ("ftp://keys.example/", "begins with none of https://"),
            ("/etc/keys.json", "begins with none of https://"),
            ("https:///keys", "there is no host in it"),
            ("https://a:b@keys.example/", "which logs would show"),
            ("file://host/keys", "a file is written file:///PATH"),
            ("https://keys.example:99999/", "Port out of range"),
            ("file:///nowhere/keys.json", "No such file or directory"),
        ],
    )
    async def test_urls(self, tmp_path: Path, url: str, expected: str) -> None:
        given = {**token_settings(url), "sasl_enabled_mechanisms": OAUTHBEARER}
        assert expected in await self.refused(tmp_path, **given)

    async def test_without_the_packages(
        self, tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in list(sys.modules):
            if module.startswith("horolog.server.security.token"):
                monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, "jwt", None)
        url = issuer.write(tmp_path / "keys.json")
        text = await self.refused(tmp_path, **token_settings(url))
        assert "needs the package jwt: install horolog[oauth]" in text

    def test_nothing_is_imported_where_it_is_off(self) -> None:
        program = (
            "import sys, asyncio, tempfile, pathlib\n"
            "from horolog.testing.broker import running_broker\n"
            "async def main():\n"
            "    async with running_broker(pathlib.Path(tempfile.mkdtemp()), http_listen='off'):\n"
            "        pass\n"
            "asyncio.run(main())\n"
            "found = {each.split('.')[0] for each in sys.modules}\n"
            "assert not found & {'jwt', 'cryptography'}, found\n"
            "ours = [each for each in sys.modules if 'security.token' in each]\n"
            "assert not ours, ours\n"
        )
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


async def test_no_token_stands_anywhere(
    guarded: Guarded,
    authority: Authority,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In the log, errors, metrics and answers of a run with good and bad tokens."""
    log, said = io.StringIO(), []
    issuer, stranger = Issuer(), Issuer()
    tls = authority.trusting()
    url = issuer.write(tmp_path / "keys.json")
    good = issuer.token("carol")
    bad = [
        issuer.token(seconds=-100),
        issuer.token(aud="x"),
        issuer.token(sub=""),
        stranger.token(),
        f"{good}x",
        good.rpartition(".")[0],
    ]
    given = token_settings(url)
    async with (
        guarded(log_stream=log, log_level="debug", **given) as broker,
        aiohttp.ClientSession() as session,
    ):
        await until(lambda: broker._state() is HttpState.READY)
        site = f"https://{broker.addresses.http}"
        for token in (good, *bad):
            broker.security.logins._throttle._failures.clear()
            async with wire(broker.addresses.native, tls=tls) as client:
                try:
                    said.append(repr(await log_in(client, "", token, OAUTHBEARER)))
                except SaslAuthenticationFailed as error:
                    said.append(str(error))
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(f"{site}/page/topics", headers=headers, ssl=tls) as answer:
                said.append(await answer.text() + str(answer.headers))
        async with session.get(f"{site}/metrics", ssl=tls) as answer:
            said.append(await answer.text())
        said.append(repr(broker.settings))
    captured = capfd.readouterr()
    everything = "\n".join((log.getvalue(), *said, captured.out, captured.err))
    assert everything.count("login_failed") == 2 * len(bad)
    for token in (good, *bad):
        for part in token.split("."):
            assert part not in everything


async def test_many_bad_tokens_cost_others_nothing(broker: Broker, issuer: Issuer) -> None:
    """Their signatures are checked in one thread, and who is inside is answered meanwhile."""
    inside = await Wire.open(broker.addresses.native)
    await log_in(inside, "", issuer.token(), OAUTHBEARER)
    bad = AuthenticateRequest(
        mechanism=OAUTHBEARER,
        auth_bytes=OAuthBearerClient(Issuer(CLOCK).token(iss=ISSUER, aud=AUDIENCE)).first(),
    )
    clients = [await Wire.open(broker.addresses.native) for _ in range(100)]
    checked = threading.Event()
    broker.security.logins._hashing.submit(checked.wait)
    waiting = [asyncio.create_task(client.call(bad)) for client in clients]
    try:
        for _ in range(20):
            await inside.call(MetadataRequest())
        assert not any(one.done() for one in waiting)
    finally:
        checked.set()
    answers = await asyncio.gather(*waiting)
    assert {(answer.auth_bytes, answer.done) for answer in answers} == {(CHALLENGE, False)}
    assert broker.figures.logins[OAUTHBEARER, "failed"] == 100
    for client in (inside, *clients):
        client.close()
