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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("alice:correct-horse@a:1", "'...@a:1'"),
        ("kafka+tls://alice:correct,horse@a:1,b:2", "'kafka+tls://...@a:1,b:2'"),
        ("a:1,correct-horse@b", "'...@b'"),
        ("http://alice:correct-horse@a:1", "'http://...@a:1'"),
    ],
)
def test_a_login_in_an_address_is_refused_and_not_shown(text: str, shown: str) -> None:
    for make in (parse_servers, Admin):
        with pytest.raises(ValueError, match="has a login before the @") as refused:
            make(text)
        assert str(refused.value).startswith(shown)
        assert "horse" not in str(refused.value)
