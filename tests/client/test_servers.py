"""Addresses: one broker, several, or a cluster."""

import pytest

from horolog import Admin
from horolog.client.cluster.servers import Servers, parse_servers


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("127.0.0.1:7070", Servers(("127.0.0.1:7070",), kafka=False)),
        ("[::1]:7070", Servers(("[::1]:7070",), kafka=False)),
        ("a:1, [::1]:2", Servers(("a:1", "[::1]:2"), kafka=False)),
        ("tls://a:1,b:2", Servers(("a:1", "b:2"), kafka=False, tls=True)),
        ("kafka://a:9092", Servers(("a:9092",), kafka=True)),
        ("kafka://a:9092/", Servers(("a:9092",), kafka=True)),
        ("kafka://a:9092, [::1]:9093", Servers(("a:9092", "[::1]:9093"), kafka=True)),
    ],
)
def test_an_address_is_taken_apart(text: str, servers: Servers) -> None:
    assert parse_servers(text) == servers


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("a", "'a' is not HOST:PORT"),
        ("kafka://", "'' is not HOST:PORT"),
        ("kafka://a", "'a' is not HOST:PORT"),
        ("kafka://a:1,", "'' is not HOST:PORT"),
        ("kafka://a:1;b:2", "is not HOST:PORT"),
        ("http://a:1", r"neither HOST:PORT\[,HOST:PORT...\] nor kafka://"),
        ("a:1,b", "'b' is not HOST:PORT"),
        ("a:1,", "'' is not HOST:PORT"),
        ("a:1/", "is not HOST:PORT"),
    ],
)
def test_what_is_no_address_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        parse_servers(text)
    with pytest.raises(ValueError, match=wrong):
        Admin(text)
