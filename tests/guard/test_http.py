"""The HTTP port with TLS and logins."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from horolog.config.address import split_address
from horolog.protocol.sasl.mechanisms import SCRAM_MECHANISMS
from horolog.server.broker import Broker
from horolog.server.security.users import CredentialRemoval
from horolog.server.web.server import HttpState
from horolog.testing.access import change_access
from horolog.testing.waiting import until

from .conftest import PASSWORD, Authority, Guarded, add_users

PROTECTED = ["/", "/page/topics", "/page/messages", "/nowhere"]
OPEN = [
    "/metrics",
    "/healthz",
    "/readyz",
    "/leader",
    "/login",
    "/static/login.js",
    "/static/style.css",
]


class Site:
    def __init__(self, broker: Broker, session: aiohttp.ClientSession, tls: ssl.SSLContext) -> None:
        self.broker = broker
        self.session = session
        self._tls = tls
        self.url = f"https://{broker.addresses.http}"

    async def get(self, path: str, **headers: str) -> aiohttp.ClientResponse:
        found = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.session.get(
            self.url + path, headers=found, ssl=self._tls, allow_redirects=False
        )

    async def post(self, path: str, body: Any, **headers: str) -> aiohttp.ClientResponse:
        found = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.session.post(self.url + path, json=body, headers=found, ssl=self._tls)

    async def is_ready(self) -> None:
        """Wait until the broker has opened everything."""
        await until(lambda: self.broker._state() is HttpState.READY)

    async def log_in(self, user: str = "alice", password: str = PASSWORD) -> int:
        answer = await self.post("/login", {"user": user, "password": password})
        return answer.status


@pytest.fixture
async def site(guarded: Guarded, authority: Authority) -> AsyncIterator[Site]:
    jar = aiohttp.CookieJar(unsafe=True)  # cookies of an address
    async with guarded() as broker, aiohttp.ClientSession(cookie_jar=jar) as session:
        found = Site(broker, session, authority.trusting())
        await found.is_ready()
        yield found


@pytest.mark.parametrize("path", PROTECTED)
async def test_what_needs_a_login(site: Site, path: str) -> None:
    answer = await site.get(path)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    from_page = await site.get(path, Sec_Fetch_Site="same-origin", Sec_Fetch_Mode="cors")
    assert from_page.status == 401
    assert "WWW-Authenticate" not in from_page.headers
    browsed = await site.get(path, Sec_Fetch_Site="none", Sec_Fetch_Mode="navigate")
    assert (browsed.status, browsed.headers["Location"]) == (303, "/login")


@pytest.mark.parametrize("path", OPEN)
async def test_what_needs_none(site: Site, path: str) -> None:
    assert (await site.get(path)).status == 200


async def test_paths_may_be_closed(guarded: Guarded, authority: Authority) -> None:
    async with guarded(http_open_paths="/healthz") as broker, aiohttp.ClientSession() as session:
        closed = Site(broker, session, authority.trusting())
        await closed.is_ready()
        for path, status in (("/healthz", 200), ("/metrics", 401), ("/readyz", 401)):
            assert (await closed.get(path)).status == status


async def test_a_session(site: Site) -> None:
    answer = await site.post("/login", {"user": "alice", "password": PASSWORD})
    assert answer.status == 200
    cookie = answer.headers["Set-Cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Secure", "Path=/"))
    assert PASSWORD not in cookie
    assert (await site.get("/page/topics")).status == 200
    assert (await site.post("/logout", {})).status == 200
    assert (await site.get("/page/topics")).status == 401


async def test_a_session_ends_with_the_user_and_with_its_password(site: Site) -> None:
    assert await site.log_in() == 200
    add_users(site.broker, alice="another")
    assert (await site.get("/page/topics")).status == 401
    assert await site.log_in(password="another") == 200
    removals = [[CredentialRemoval("alice", each)] for each in SCRAM_MECHANISMS.values()]
    change_access(site.broker, lambda: site.broker.security.users.planned(removals))
    assert (await site.get("/page/topics")).status == 401


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", PASSWORD)])
async def test_a_login_that_fails(site: Site, user: str, password: str) -> None:
    answer = await site.post("/login", {"user": user, "password": password})
    assert answer.status == 401
    assert await answer.json() == {"error": "the user does not exist, or the password is wrong"}
    assert "Set-Cookie" not in answer.headers
    assert site.broker.figures.logins == {("HTTP", "failed"): 1}


async def test_what_another_site_could_send_is_no_login(site: Site) -> None:
    body = {"user": "alice", "password": PASSWORD}
    assert (await site.post("/login", body, Sec_Fetch_Site="cross-site")).status == 403
    assert (await site.post("/login", body, Sec_Fetch_Site="same-site")).status == 403
    form = await site.session.post(site.url + "/login", data=body, ssl=site._tls)
    assert form.status == 415
    assert (await site.get("/page/topics")).status == 401


@pytest.mark.parametrize(
    "body",
    [
        *([], "x", {}, {"user": 1, "password": "x"}, {"user": "a"}),
        {"user": "\ud800", "password": PASSWORD},
        {"user": "alice", "password": "a\udfffb"},
        {"\ud800": "alice"},
    ],
    ids=repr,
)
async def test_what_is_no_login(site: Site, body: Any) -> None:
    """Text that is not Unicode too, which JSON can write."""
    assert (await site.post("/login", body)).status == 400


@pytest.mark.parametrize(
    "head",
    [
        b"GET /page/topics?\xed\xa0\x80=1 HTTP/1.1",
        b"GET /page/segments?topic=%ED%A0%80 HTTP/1.1",
        b"GET /page/members?group=%ED%A0%80 HTTP/1.1",
        b"GET /page/histogram?topic=a&from=%ED%A0%80 HTTP/1.1",
        b"GET /static/%ED%A0%80 HTTP/1.1",
        b"GET /%ED%A0%80 HTTP/1.1",
        b"GET / HTTP/1.1\r\nCookie: horolog_session=\xed\xa0\x80",
        b"GET / HTTP/1.1\r\nAuthorization: Bearer \xed\xa0\x80.x.x",
        b"GET / HTTP/1.1\r\nAuthorization: Basic \xed\xa0\x80",
        b"GET / HTTP/1.1\r\nAuthorization: Basic 7aCAOng=",
        b"GET / HTTP/1.1\r\nSec-Fetch-Site: \xed\xa0\x80",
        b'GET /static/main.js HTTP/1.1\r\nIf-None-Match: "\xed\xa0\x80"',
        b"POST /login HTTP/1.1\r\nContent-Type: \xed\xa0\x80",
        b"POST /logout HTTP/1.1\r\nContent-Type: application/json\r\nCookie: a=\xed\xa0\x80",
    ],
)
async def test_text_that_is_not_unicode_is_the_clients_fault(
    site: Site, authority: Authority, head: bytes
) -> None:
    host, port = split_address(site.url.removeprefix("https://"))
    reader, writer = await asyncio.open_connection(host, port, ssl=authority.trusting())
    writer.write(head + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.split()[1][:1] in (b"2", b"3", b"4"), answer


async def test_bodies_are_bounded(site: Site) -> None:
    assert (await site.post("/login", {"user": "x" * 9000, "password": ""})).status == 413


async def test_basic(site: Site) -> None:
    right = aiohttp.encode_basic_auth("alice", PASSWORD)
    assert (await site.get("/page/topics", Authorization=right)).status == 200
    for wrong in (aiohttp.encode_basic_auth("alice", "no"), "Basic !", "Basic YQ==", "Bearer x"):
        assert (await site.get("/page/topics", Authorization=wrong)).status == 401


async def test_the_page_names_its_user_and_whether_a_logout_means_anything(site: Site) -> None:
    basic = {"Authorization": aiohttp.encode_basic_auth("alice", PASSWORD)}
    user = (await (await site.get("/page/topics", **basic)).json())["user"]
    assert user == {"name": "alice", "principal": "User:alice", "has_session": False}
    assert await site.log_in() == 200
    assert (await (await site.get("/page/topics")).json())["user"] == {**user, "has_session": True}


async def test_a_cookie_that_nobody_was_given(site: Site) -> None:
    assert (await site.get("/page/topics", Cookie="horolog_session=x")).status == 401
    assert (await site.get("/page/topics", Cookie="horolog_session=\udcff")).status == 401


async def test_a_client_certificate(guarded: Guarded, authority: Authority) -> None:
    mine = authority.issue("scraper", "/CN=prometheus")
    tls = authority.trusting(mine)
    async with (
        guarded(tls_client_auth="required", tls_client_ca=authority.cert) as broker,
        aiohttp.ClientSession() as session,
    ):
        assert (await Site(broker, session, tls).get("/page/topics")).status == 200


async def test_every_answer_has_a_strict_policy(site: Site) -> None:
    for path in (*PROTECTED, "/login", "/static/login.js"):
        answer = await site.get(path)
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert "Access-Control-Allow-Origin" not in answer.headers
    foreign = await site.get("/login", Host="evil.example")
    assert foreign.status == 403


async def test_no_answer_names_versions_or_may_be_taken_for_another_type(site: Site) -> None:
    """Those of programs too, and of what there is not."""
    answers = [await site.get(path) for path in (*PROTECTED, *OPEN, "/static/nothing")]
    answers += [
        await site.post("/login", {}),
        await site.post("/metrics", {}),
        await site.get("/login", Host="evil.example"),
    ]
    assert await site.log_in() == 200
    answers.append(await site.get("/nowhere"))
    assert {answer.status for answer in answers} >= {200, 400, 401, 403, 404, 405}
    for answer in answers:
        assert answer.headers["X-Content-Type-Options"] == "nosniff", answer.url
        assert answer.headers.getall("Server") == ["horolog"], answer.url
