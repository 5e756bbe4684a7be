"""docs/clients.md says what these tests prove."""

import importlib
import json
from pathlib import Path

import pytest

from .kafka_js import SOURCES
from .matrix import PROVED, SHOWN
from .page import lines
from .steps import Step

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
MODULES = ("test_groups", "test_messages", "test_old_formats", "test_restart", "test_topics")


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == "\n".join(lines()) + "\n", "run `make docs`"


def test_every_row_is_proved() -> None:
    for module in MODULES:
        importlib.import_module(f".{module}", __package__)
    assert set(Step) == PROVED


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in SHOWN])
def test_what_a_client_cannot_do_has_a_reason(kind: type) -> None:
    assert all(kind.unable.values())  # type: ignore[attr-defined]


def test_packages_of_node_are_pinned_and_name_no_registry() -> None:
    wanted = json.loads((SOURCES / "package.json").read_text("utf-8"))["dependencies"]
    packages = json.loads((SOURCES / "package-lock.json").read_text("utf-8"))["packages"]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    fetched = [package for name, package in packages.items() if name]
    assert all(package["integrity"].startswith("sha512-") for package in fetched)
    assert not [package for package in fetched if "resolved" in package]
