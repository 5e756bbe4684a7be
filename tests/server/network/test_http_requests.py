"""Requests to the HTTP port that are not answered: foreign names, and what is no request."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from horolog.config.address import split_address
from horolog.config.broker import broker_settings
from horolog.protocol.errors import InvalidConfig
from horolog.server.broker import Broker
from horolog.server.web.connection import is_known_host
from horolog.testing.broker import running_broker

pytestmark = pytest.mark.both_loops

PATHS = [
    "/metrics",
    "/healthz",
    "/readyz",
    "/leader",
    "/",
    "/static/main.js",
    "/page/topics",
    "/nowhere",
]
NAMES = frozenset({"broker", "kafka.example.com"})


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
async def broker(tmp_path: Path, log: io.StringIO) -> AsyncIterator[Broker]:
    async with running_broker(
        tmp_path, log_stream=log, log_format="json", http_hosts="broker, Kafka.Example.com"
    ) as started:
        await ask(started, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        yield started


def lines(log: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


async def ask(broker: Broker, request: bytes) -> tuple[int, bytes]:
    """Send bytes, and read until the first answer is complete: its status, and all of it."""
    assert broker.addresses.http is not None
    reader, writer = await asyncio.open_connection(*split_address(broker.addresses.http))
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 100 "):
            head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        return int(head.split()[1]), head + await reader.readexactly(length)
    finally:
        writer.close()


def get(path: str, *headers: bytes, version: bytes = b"1.1") -> bytes:
    lines = [b"GET %s HTTP/%s" % (path.encode(), version), *headers, b"", b""]
    return b"\r\n".join(lines)


@pytest.mark.parametrize("path", PATHS)
async def test_only_addresses_localhost_and_given_names_are_answered(
    broker: Broker, path: str
) -> None:
    right = (await ask(broker, get(path, b"Host: 127.0.0.1:7071")))[0]
    assert right == (404 if path == "/nowhere" else 200)
    for host in (b"localhost", b"[::1]:7071", b"BROKER:7071", b"kafka.example.com"):
        assert (await ask(broker, get(path, b"Host: " + host)))[0] == right
    for host in (b"evil.example.com", b"printer.local", b"nas", b"a.localhost", b"broker.", b""):
        status, answer = await ask(broker, get(path, b"Host: " + host))
        if host == b"broker.":
            assert status == right
            continue
        assert status == 403
        assert b"http.hosts" in answer
        assert b"nosniff" in answer
        assert b"horolog_" not in answer
    assert broker.figures.http_requests_refused == {"host": 5}


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1:7071", True),
        ("192.168.1.5", True),
        ("[::1]:7071", True),
        ("[::1]", True),
        ("[fe80::1%eth0]:7071", True),
        ("localhost", True),
        ("LocalHost.:7071", True),
        ("broker", True),
        ("BROKER:7071", True),
        ("kafka.example.com.", True),
        ("other", False),
        ("broker.local", False),
        ("broker.internal", False),
        ("x.localhost", False),
        ("example.com", False),
        ("a.kafka.example.com", False),
        ("127.0.0.1.example.com", False),
        ("127.0.0.1..", False),
        ("0x7f.1", False),
        ("2130706433", False),
        ("", False),
        (":7071", False),
        ("a:b:c.com", False),
        ("::1", False),
        ("[::1", False),
        ("[::1].example.com", False),
        ("[127.0.0.1]", False),
        ("[broker]", False),
        ("localhost:7071:1", False),
        ("localhost:7071@evil.example", False),
        ("evil.example,localhost", False),
        ("\N{ARABIC-INDIC DIGIT ONE}27.0.0.1", False),
    ],
)
def test_known_hosts(host: str, known: bool) -> None:
    assert is_known_host(host, NAMES) is known


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ""),
        ("broker", "broker"),
        (" Broker , a.example.com,my_broker", "broker,a.example.com,my_broker"),
    ],
)
def test_names_that_may_be_given(text: str, names: str) -> None:
    assert broker_settings({"http.hosts": text}).http_hosts == names


@pytest.mark.parametrize(
    "text", ["*", "*.example.com", "a,,b", "a,", "http://a", "a:7071", "a b", "a/", "é", "a" * 64]
)
def test_names_that_may_not_be_given(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"http\.hosts = .* host names separated by commas"):
        broker_settings({"http.hosts": text})


async def test_a_request_without_a_host(broker: Broker) -> None:
    """No browser sends one, and probes of load balancers do, in HTTP/1.0."""
    assert (await ask(broker, get("/healthz", version=b"1.0")))[0] == 200
    assert (await ask(broker, get("/healthz")))[0] == 400


SURROGATE = b"\x8e"
MALFORMED = {
    "no-request": b"hello\r\n\r\n",
    "TLS": bytes.fromhex("16030102000100" + "01fc0303" * 8) + b"\r\n\r\n",
    "version": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "method": b"G\xffT / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "header": b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
    "header-name": b"GET / HTTP/1.1\r\nHost: localhost\r\nA\x8e: b\r\n\r\n",
    "header-zero": b"GET / HTTP/1.1\r\nHost: localhost\r\nA: b\x00\r\n\r\n",
    "long-header": b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 9000 + b"\r\n\r\n",
    "long-path": b"GET /" + b"b" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "length": b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
    "two-lengths": b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n",
    "two-hosts": get("/metrics", b"Host: localhost", b"Host: evil.example"),
    "proxy": get("http://evil.example/metrics", b"Host: localhost"),
    "authority": b"GET evil.example:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "host": get("/metrics", b"Host: [::1"),
    "host-bytes": get("/metrics", b"Host: \x8e\xff"),
    "path-bytes": b"GET /\x8e HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "path-escapes": get("/%8e%ff%00", b"Host: localhost"),
    "query-bytes": b"GET /page/find?topic=\x8e HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "query-escapes": get("/page/find?topic=%8e%ff&at=%00", b"Host: localhost"),
    "many-queries": get("/page/topics?" + "&".join("a" * 1500), b"Host: localhost"),
    "expect": get("/metrics", b"Host: localhost", b"Expect: 200-ok"),
    "expect-bytes": get("/metrics", b"Host: localhost", b"Expect: " + SURROGATE),
    "expect-nowhere": get("/nowhere", b"Host: localhost", b"Expect: " + SURROGATE),
    "accept-bytes": get("/nowhere", b"Host: localhost", b"Accept: " + SURROGATE),
    "etag-bytes": get("/nowhere", b"Host: localhost", b"If-None-Match: " + SURROGATE),
    "encoding": get("/", b"Host: localhost", b"Transfer-Encoding: \x8e"),
    "content-type": get("/", b"Host: localhost", b"Content-Type: \x8e/;;;", b"Content-Length: 0"),
    "cookie": get("/nowhere", b"Host: localhost", b"Cookie: \x8e=\x8e;;=;"),
    "range": get("/nowhere", b"Host: localhost", b"Range: \x8e"),
    "post": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
    "connect": b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "upgrade": get("/nowhere", b"Host: localhost", b"Connection: Upgrade", b"Upgrade: websocket"),
}

ODD = {"query-escapes", "many-queries", "content-type"}
"""Those that are requests all the same."""


@pytest.mark.parametrize("name", MALFORMED)
async def test_what_is_no_request_gets_an_error_of_its_own(
    broker: Broker, log: io.StringIO, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    status, answer = await ask(broker, MALFORMED[name])
    assert status == 200 if name in ODD else 400 <= status < 500, answer
    if name.startswith("expect"):
        assert status == 417
    assert b"Traceback" not in answer
    assert "Traceback" not in log.getvalue()
    assert not [line for line in lines(log) if line["level"] == "error"]
    assert capfd.readouterr() == ("", "")


async def test_a_right_expectation_is_answered(broker: Broker) -> None:
    request = get("/healthz", b"Host: localhost", b"Expect: 100-Continue", b"Content-Length: 0")
    assert (await ask(broker, request))[0] == 200


async def test_many_bad_requests_are_counted_and_told_once(
    broker: Broker, log: io.StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(300):
        await ask(broker, MALFORMED["header-name"])
        await ask(broker, MALFORMED["expect-bytes"])
        await ask(broker, get("/metrics", b"Host: evil.example"))
    counted = {"malformed": 300, "expectation": 300, "host": 300}
    assert broker.figures.http_requests_refused == counted
    refused = [line for line in lines(log) if line["event"] == "http_request_refused"]
    assert sorted(str(line["reason"]) for line in refused) == sorted(counted)
    assert {line["level"] for line in refused} == {"warning"}
    assert "\x8e" not in log.getvalue()
    assert broker.figures.suppressed_lines == {"http_request_refused": 897}
    assert capfd.readouterr() == ("", "")


async def test_a_bug_is_told_once_as_an_event(
    broker: Broker, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(broker, "_metrics_lines", fail)
    for _ in range(20):
        status, answer = await ask(broker, get("/metrics", b"Host: localhost"))
        assert status == 500
        assert b"ZeroDivisionError" not in answer
    (failed,) = [line for line in lines(log) if line["event"] == "http_request_failed"]
    assert failed["error"] == "a bug"
    assert "exception" in failed
