"""Addresses of the ports that cannot be had together, or that somebody else has."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from horolog import congestion
from horolog.config.broker import BrokerSettings, broker_settings
from horolog.server.network.listener import CannotListen, SameAddress
from horolog.server.network.ports import Ports
from horolog.testing.logs import RecordedEvents
from horolog.testing.ports import free_port

from ..processes import process, ready, refusal

OFF = {
    "listen": "127.0.0.1:0",
    "http.listen": "off",
    "kafka.listen": "off",
    "allow.plaintext": "true",
}
PAIRS = [("listen", "kafka.listen"), ("listen", "http.listen"), ("http.listen", "kafka.listen")]


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_two_settings_with_one_address_are_wrong_usage(
    tmp_path: Path, first: str, second: str
) -> None:
    address = f"127.0.0.1:{free_port()}"
    given = {first: address, second: address}
    settings = {name.replace(".", "_"): text for name, text in (OFF | given).items()}
    async with process(tmp_path / "data", open_files=None, **settings) as started:
        line = await refusal(started, code=2)
    assert line.startswith(f"horolog: cannot listen on {address} ({second}): {first} has")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("127.0.0.1", "0.0.0.0"),
        ("0.0.0.0", "127.0.0.1"),
        ("localhost", "127.0.0.1"),
        ("[::]", "127.0.0.1"),
        ("[::]", "0.0.0.0"),
        ("[::1]", "[::]"),
    ],
)
def test_addresses_that_take_in_each_other(one: str, other: str) -> None:
    port = free_port()
    given = OFF | {"listen": f"{one}:{port}", "kafka.listen": f"{other}:{port}"}
    with pytest.raises(SameAddress) as refused:
        Ports(broker_settings(given), RecordedEvents())
    assert all(text in str(refused.value) for text in (str(port), "(kafka.listen)", "listen has"))


def test_one_port_of_two_addresses() -> None:
    port = free_port()
    given = OFF | {"listen": f"127.0.0.1:{port}", "kafka.listen": f"127.0.0.2:{port}"}
    with Ports(broker_settings(given), RecordedEvents()) as ports:
        ports.listen()
        assert ports.addresses.kafka == f"127.0.0.2:{port}"
    given["kafka.listen"] = f"[::1]:{port}"
    with Ports(broker_settings(given), RecordedEvents()) as ports:
        ports.listen()


@contextmanager
def listening(address: str) -> Iterator[None]:
    """Somebody who listens at an address, as a second broker would."""
    host, _, port = address.rpartition(":")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((host, int(port)))
        other.listen()
        yield


@pytest.mark.parametrize("setting", ["listen", "http.listen", "kafka.listen"])
def test_an_address_taken_after_it_was_bound_is_named(setting: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    with (
        Ports(broker_settings(OFF | {setting: address}), RecordedEvents()) as ports,
        listening(address),
        pytest.raises(CannotListen, match=re.escape(f"listen on {address} ({setting}): Address")),
    ):
        ports.listen()


@pytest.mark.parametrize("setting", ["listen", "http.listen", "kafka.listen"])
async def test_an_address_of_another_process_is_named(tmp_path: Path, setting: str) -> None:
    async with process(tmp_path / "one") as first:
        address = await ready(first)
        settings = {
            name.replace(".", "_"): text for name, text in (OFF | {setting: address}).items()
        }
        async with process(tmp_path / "two", open_files=None, **settings) as second:
            line = await refusal(second)
    assert line.startswith(f"horolog: cannot listen on {address} ({setting}): Address already")


def unasked_kafka_port(address: str, **given: str) -> BrokerSettings:
    """Settings as they are where 127.0.0.1:9092, the default, is `address`."""
    settings = broker_settings(OFF | given)
    return replace(settings, kafka_listen=address, kafka_listen_given=False)


def test_the_default_kafka_port_gives_way() -> None:
    address = f"127.0.0.1:{free_port()}"
    events = RecordedEvents()
    with Ports(unasked_kafka_port(address, listen=address), events) as ports:
        ports.listen()
        assert ports.addresses.kafka is None
    with Ports(unasked_kafka_port(address), events) as ports:
        with listening(address):
            ports.listen()
        assert ports.addresses.kafka is None
    assert [name for name, _ in events.seen] == ["kafka_port_taken"] * 2


@pytest.mark.parametrize(("given", "expected"), [("65536", 2 * 65536), ("-1", None)])
def test_connections_have_the_send_buffer_that_was_asked_for(
    given: str, expected: int | None
) -> None:
    send_buffer = (socket.SOL_SOCKET, socket.SO_SNDBUF)
    with Ports(
        broker_settings(OFF | {"socket.send.buffer.bytes": given}), RecordedEvents()
    ) as ports:
        ports.listen()
        bound = ports.of("listen")[0].bound
        with socket.socket() as client:
            congestion.expect_local(client)
            client.connect(bound.getsockname())
            bound.setblocking(True)
            accepted, _ = bound.accept()
            with accepted:
                # The system reports twice what was set. Left to it, both ends begin alike, if they
                # have the same congestion control.
                assert accepted.getsockopt(*send_buffer) == (
                    expected or client.getsockopt(*send_buffer)
                )
