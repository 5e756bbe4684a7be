"""`import horolog`: everything is there, and nothing is loaded before it is used."""

import subprocess
import sys

import pytest

import horolog
from horolog.protocol.errors import ERRORS


def test_every_public_name_is_there() -> None:
    assert [name for name in horolog.__all__ if not hasattr(horolog, name)] == []
    assert set(horolog.__all__) <= set(dir(horolog))


def test_every_error_class_is_public() -> None:
    assert {error.__name__ for error in ERRORS.values()} <= set(horolog.__all__)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Kafka'"):
        _ = horolog.Kafka


def test_importing_loads_next_to_nothing() -> None:
    code = "import sys, horolog; print(sorted(n for n in sys.modules if n.startswith('horolog')))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert loaded.stdout.strip() == "['horolog']"


def test_a_producer_needs_no_server_code() -> None:
    code = (
        "import sys, horolog; horolog.Producer; horolog.Consumer; horolog.Admin;"
        "print([n for n in sys.modules if n.startswith(('horolog.server', 'horolog.storage'))])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert loaded.stdout.strip() == "[]"
