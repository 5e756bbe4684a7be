"""Which addresses may be opened, and how the log tells of those that are open to all."""

import asyncio
import io
import re
import signal
from pathlib import Path

import pytest
import yaml

from horolog.cli.serve import broker_parser, settings_of
from horolog.config.broker import broker_settings
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.errors import IllegalSaslState
from horolog.server.network.listener import Unprotected
from horolog.server.network.ports import KAFKA, NATIVE, Ports, advertised
from horolog.server.security import service
from horolog.testing.access import log_in_to_kafka
from horolog.testing.broker import running_broker
from horolog.testing.logs import RecordedEvents
from horolog.testing.program import Program
from horolog.testing.waiting import until
from horolog.testing.wire import wire

from .conftest import PASSWORD, Authority, Guarded, Pair

OFF = {"listen": "127.0.0.1:0", "http.listen": "off", "kafka.listen": "off"}


@pytest.mark.parametrize("setting", ["listen", "http.listen", "kafka.listen"])
@pytest.mark.parametrize(
    ("address", "more", "lacks"),
    [
        ("0.0.0.0:0", {}, "not TLS nor a login"),
        ("[::]:0", {}, "not TLS nor a login"),
        ("0.0.0.0:0", {"authentication": "required"}, "not TLS"),
        ("tls://0.0.0.0:0", {}, "not a login"),
        ("tls://0.0.0.0:0", {"tls.client.auth": "requested"}, "not a login"),
        ("SSL://0.0.0.0:0", {"authentication": "required"}, "not a login"),
        ("SASL_PLAINTEXT://0.0.0.0:0", {}, "not TLS"),
        ("PLAINTEXT://0.0.0.0:0", {"authentication": "required"}, "not TLS nor a login"),
        ("127.0.0.1:0,0.0.0.0:0", {}, "not TLS nor a login"),
    ],
)
def test_what_others_reach_is_refused_without_both(
    pair: Pair,
    authority: Authority,
    setting: str,
    address: str,
    more: dict[str, str],
    lacks: str,
) -> None:
    given = {
        **OFF,
        "tls.cert": str(pair.cert),
        "tls.key": str(pair.key),
        "tls.client.ca": str(authority.cert),
        **more,
        setting: address,
    }
    with pytest.raises(Unprotected) as refused:
        Ports(broker_settings(given), RecordedEvents())
    text = str(refused.value)
    assert f"({setting}): others can reach it, and it has {lacks}." in text
    assert "allow.plaintext=true" in text
    with Ports(broker_settings({**given, "allow.plaintext": "true"}), RecordedEvents()) as ports:
        assert len(ports.open_to_others) == 1


@pytest.mark.parametrize(
    ("address", "more"),
    [
        ("127.0.0.1:0", {}),
        ("[::1]:0", {}),
        ("localhost:0", {}),
        ("127.8.8.8:0", {}),
        ("tls://127.0.0.1:0", {}),
        ("tls://0.0.0.0:0", {"authentication": "required"}),
        ("SASL_SSL://0.0.0.0:0", {}),
        ("tls://0.0.0.0:0", {"tls.client.auth": "required"}),
        ("SSL://0.0.0.0:0", {"tls.client.auth": "required"}),
    ],
)
def test_what_is_taken(
    pair: Pair, authority: Authority, address: str, more: dict[str, str]
) -> None:
    given = {
        **OFF,
        "tls.cert": str(pair.cert),
        "tls.key": str(pair.key),
        "tls.client.ca": str(authority.cert),
        **more,
        "kafka.listen": address,
    }
    with Ports(broker_settings(given), RecordedEvents()) as ports:
        assert ports.open_to_others == []


def test_tls_needs_a_certificate() -> None:
    with pytest.raises(Unprotected, match=r"\(listen\): tls.cert is not set"):
        Ports(broker_settings({**OFF, "listen": "tls://127.0.0.1:0"}), RecordedEvents())
    with pytest.raises(Unprotected, match=r"needs tls\.client\.ca"):
        Ports(broker_settings({**OFF, "tls.client.auth": "required"}), RecordedEvents())


@pytest.mark.parametrize(
    ("scheme", "authentication", "login"),
    [
        ("", "none", False),
        ("", "required", True),
        ("tls://", "none", False),
        ("tls://", "required", True),
        ("PLAINTEXT://", "required", False),
        ("SSL://", "required", False),
        ("SASL_PLAINTEXT://", "none", True),
        ("SASL_SSL://", "none", True),
    ],
)
def test_what_a_scheme_says(pair: Pair, scheme: str, authentication: str, login: bool) -> None:
    given = {
        **OFF,
        "tls.cert": str(pair.cert),
        "tls.key": str(pair.key),
        "authentication": authentication,
        "kafka.listen": f"{scheme}127.0.0.1:0",
    }
    with Ports(broker_settings(given), RecordedEvents()) as ports:
        (port,) = ports.of(KAFKA)
        assert (port.login, port.encrypted) == (
            login,
            scheme in ("tls://", "SSL://", "SASL_SSL://"),
        )


async def test_an_inner_and_an_outer_address(
    guarded: Guarded, authority: Authority, tmp_path: Path
) -> None:
    async with guarded(listen="tls://127.0.0.1:0,PLAINTEXT://127.0.0.1:0") as broker:
        outer, inner = (port for port in broker._ports.of(NATIVE))
        assert broker.addresses.native == str(outer).split("//")[1].split()[0]
        async with wire(str(inner).split("//")[1].split()[0]) as client:
            assert (await client.call(MetadataRequest())).brokers
        async with wire(broker.addresses.native, tls=authority.trusting()) as client:
            with pytest.raises(IllegalSaslState):
                await client.call(MetadataRequest())


def test_what_is_advertised() -> None:
    found = dict(advertised("SASL_SSL://a:1,b:2", "as-reached"))
    assert found == {"SASL_SSL://": "a:1", "": "b:2"}
    assert dict(advertised("as-reached", "as-reached")) == {}


async def test_each_kind_of_address_is_advertised_by_itself(
    guarded: Guarded, authority: Authority
) -> None:
    async with guarded(
        kafka_listen="SASL_SSL://127.0.0.1:0",
        advertised_listeners="SASL_SSL://outer.example:1,PLAINTEXT://inner.example:2",
    ) as broker:
        assert broker.addresses.kafka is not None
        async with wire(broker.addresses.kafka, kafka, authority.trusting()) as client:
            await log_in_to_kafka(client, "alice", PASSWORD)
            (node,) = (await client.call(MetadataRequest(topics=[]))).brokers
            assert (node.host, node.port) == ("outer.example", 1)


async def test_open_ports_are_told_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "WARNING_SECONDS", 0.02)
    log = io.StringIO()
    async with running_broker(
        tmp_path, log_stream=log, log_format="json", listen="0.0.0.0:0", allow_plaintext=True
    ):
        await until(lambda: log.getvalue().count('"port_unprotected"') >= 3)
    assert '"lacks": "TLS and a login"' in log.getvalue()
    assert '"level": "warning"' in log.getvalue()


async def test_a_quiet_default(tmp_path: Path) -> None:
    log = io.StringIO()
    async with running_broker(tmp_path, log_stream=log):
        pass
    assert "port_unprotected" not in log.getvalue()


def test_the_program_refuses_and_says_how(tmp_path: Path) -> None:
    program = Program(env={"HOROLOG_DATA_DIR": str(tmp_path / "data")})
    refused = program("serve", "--listen", "0.0.0.0:0", "--http-listen", "off")
    assert refused.code == 2
    assert "others can reach it" in refused.err
    assert "allow.plaintext=true" in refused.err
    assert not (tmp_path / "data").exists()


def test_the_program_with_several_addresses_and_sighup(tmp_path: Path, pair: Pair) -> None:
    program = Program(env={"HOROLOG_DATA_DIR": str(tmp_path / "data")})
    options = ("--http-listen", "off", "--kafka-listen", "SASL_SSL://127.0.0.1:0")
    inner = ("--listen", "PLAINTEXT://127.0.0.1:0", "--listen", "tls://127.0.0.1:0")
    files = ("--set", f"tls.cert={pair.cert}", "--set", f"tls.key={pair.key}")
    with program.running("serve", *inner, *options, *files) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready native=127.0.0.1:")
        assert "://" not in line
        process.send_signal(signal.SIGHUP)
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("given", "listens"),
    [
        (["off", "127.0.0.1:1"], "127.0.0.1:1"),
        (["127.0.0.1:1", "off"], "off"),
        (["127.0.0.1:1", "tls://127.0.0.1:2"], "127.0.0.1:1,tls://127.0.0.1:2"),
        (["off"], "off"),
    ],
)
def test_an_option_that_is_repeated(given: list[str], listens: str) -> None:
    parser = broker_parser("horolog serve", "")
    arguments = [word for each in given for word in ("--kafka-listen", each)]
    assert settings_of(parser, parser.parse_args(arguments), {}).kafka_listen == listens


def test_sighup_without_tls(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_broker(tmp_path) as broker:
            broker.read_certificates_again()

    asyncio.run(run())


def test_the_composition_with_tls_starts_and_is_healthy(
    root: Path, tmp_path: Path, pair: Pair
) -> None:
    """With the settings of docker/compose-tls.yaml, on free ports and with files of its own."""
    composition = yaml.safe_load((root / "docker" / "compose-tls.yaml").read_text("utf-8"))
    broker = composition["services"]["broker"]
    env = {
        name: re.sub(r":\d{4}\b", ":0", value.replace("${HOROLOG_NAME:-localhost}", "localhost"))
        for name, value in broker["environment"].items()
    }
    assert (env["HOROLOG_TLS_CERT"], env["HOROLOG_TLS_KEY"]) == (
        "/tls/broker.pem",
        "/tls/broker.key",
    )
    env |= {
        "HOROLOG_DATA_DIR": str(tmp_path / "data"),
        "HOROLOG_TLS_CERT": str(pair.cert),
        "HOROLOG_TLS_KEY": str(pair.key),
        "HOROLOG_ADVERTISED_LISTENERS": "localhost:9092",
    }
    assert "allow" not in str(env).lower()
    with Program(env=env).running("serve") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready native=0.0.0.0:")
        process.terminate()
        assert process.wait(30) == 0
