"""`import horolog`: everything is there, and nothing is loaded before it is used."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import horolog
from horolog.protocol.errors import ERRORS
from horolog.tests.pages.python import examples


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


ROOT = Path(horolog.__file__).parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def names_used(example: str) -> Iterator[tuple[str, str]]:
    """(module, name) of what an example takes from Horolog."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    tree: ast.Module = compile(example, "example", "exec", flags)
    modules = {"horolog": "horolog"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "horolog":
            for alias in node.names:
                yield str(node.module), alias.name
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            assert not [one.name for one in node.names if one.name.startswith("horolog.")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id, "")
            if module in ("horolog", "horolog.blocking", "horolog.pipeline"):
                yield module, node.attr


def test_examples_use_public_names_only() -> None:
    used = {
        (module, name)
        for page in PAGES
        for example in examples(page)
        for module, name in names_used(example)
    }
    assert {("horolog", "Producer"), ("horolog.blocking", "Consumer")} <= used
    assert [
        f"{module}.{name}"
        for module, name in sorted(used)
        if name not in importlib.import_module(module).__all__
    ] == []


@pytest.mark.parametrize(
    "name",
    [
        *("horolog", "horolog.blocking", "horolog.pipeline", "horolog.pipeline.jobs.dataframes"),
        *("horolog.pipeline.jobs.ranges", "horolog.testing.broker", "horolog.cli.main"),
    ],
)
def test_every_name_of_a_public_module_is_there(name: str) -> None:
    module = importlib.import_module(name)
    assert [one for one in module.__all__ if not hasattr(module, one)] == []
    assert sorted(set(module.__all__)) == sorted(module.__all__)


def test_horolog_imports_exactly_its_public_names() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    (typed,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = [
        alias.name
        for node in ast.walk(typed)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted(imported) == sorted(horolog.__all__)


@pytest.mark.parametrize("name", ["Admin", "Consumer", "Producer", "TimeWindow"])
def test_the_blocking_clients_offer_no_other_name(name: str) -> None:
    """What they have in public is what the clients of asyncio have."""
    has = {one for one in dir(getattr(horolog.blocking, name)) if not one.startswith("_")}
    assert has <= {one for one in dir(getattr(horolog, name)) if not one.startswith("_")} | {"take"}
