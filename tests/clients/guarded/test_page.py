"""docs/security/clients.md says what these tests prove."""

from .page import PAGE, page
from .ways import CLIENTS, MECHANISMS, SMOKE, UNABLE, ways


def test_the_table_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `make docs`"


def test_every_client_is_let_in_every_way_or_there_is_a_reason() -> None:
    tried = {(way.kind, way.mechanism) for way in ways()}
    every = {(kind, mechanism) for kind in CLIENTS for mechanism in MECHANISMS}
    reasoned = {(kind, what) for kind, reasons in UNABLE.items() for what in reasons}
    assert every - tried == reasoned & every
    assert not tried & reasoned
    assert {kind for kind, _ in tried} == set(CLIENTS)


def test_every_run_has_some_of_them() -> None:
    assert set(SMOKE) <= set(ways())
    assert {way.mechanism for way in SMOKE} == set(MECHANISMS)
