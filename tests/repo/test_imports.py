"""Imports point one way."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

BASE = {"clock", "printable", "times", "values", "config", "protocol"}
MAY_IMPORT = {
    "clock": set(),
    "times": {"protocol"},
    "printable": set(),
    "values": set(),
    "memory": set(),
    "compiled": set(),
    "congestion": set(),
    "setup": set(),
    "protocol": {"compiled", "values"},
    "config": {"protocol", "times", "values"},
    "storage": BASE,
    "client": BASE | {"compiled", "congestion"},
    "blocking": BASE | {"client"},
    "pipeline": BASE | {"blocking", "client", "compiled", "memory", "storage"},
    "replication": BASE | {"client", "storage"},
    "server": BASE | {"client", "compiled", "congestion", "memory", "replication", "storage"},
    "testing": BASE | {"storage", "replication", "server", "client"},
    "bench": BASE | {"blocking", "client", "compiled", "congestion", "pipeline", "server"}
    | {"storage", "testing"},
    "cli": BASE | {"compiled", "memory", "storage", "client", "pipeline", "server", "testing"}
    | {"bench"},
    "pyspark_horolog": {"pipeline"},
    "__init__": {"blocking", "client", "compiled", "protocol", "times"},
    "__main__": {"cli"},
}  # fmt: skip
"""Part of the package -> the other parts it may import. Nobody imports `cli`."""

MAY_NOT_IMPORT = {
    "protocol": {"asyncio", "os", "pathlib", "socket", "structlog", "time", "uvloop"},
    "config": {"asyncio", "socket", "structlog", "time", "uvloop"},
    "replication": {"asyncio", "os", "pathlib", "random", "socket", "structlog", "time", "uvloop"},
    "storage": {"aiohttp", "asyncio", "socket", "structlog", "uvloop"},
    "server/handlers": {"msgpack", "struct"},
}
"""Folder -> modules from outside that what it is for forbids."""


@cache
def imports(path: Path, source: str) -> tuple[tuple[int, str], ...]:
    """(line, imported module) of every import; ours as `horolog.<module>`."""
    return tuple(_imports(path, source))


def _imports(path: Path, source: str) -> Iterator[tuple[int, str]]:
    package = ("horolog", *path.parent.parts)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*start, *([node.module] if node.module else ())))
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def part_of(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def test_parts_import_only_what_lies_below_them(root: Path, modules: list[Path]) -> None:
    wrong = []
    for path in modules:
        for line, module in imports(path, (root / path).read_text(encoding="utf-8")):
            imported, _, rest = module.partition(".")
            part = rest.partition(".")[0]
            if imported != "horolog" or part in (part_of(path), "__version__"):
                continue
            if part not in MAY_IMPORT[part_of(path)]:
                wrong.append(f"{path}:{line} imports {module}")
    assert wrong == []


def test_each_part_keeps_out_of_what_is_not_its_business(root: Path, modules: list[Path]) -> None:
    wrong = []
    for path in modules:
        for folder, banned in MAY_NOT_IMPORT.items():
            if not path.is_relative_to(folder):
                continue
            for line, module in imports(path, (root / path).read_text(encoding="utf-8")):
                if module in banned or module.partition(".")[0] in banned:
                    wrong.append(f"{path}:{line} imports {module}")
    assert wrong == []


def test_the_package_imports_itself_relatively(root: Path, modules: list[Path]) -> None:
    wrong = []
    for path in modules:
        if part_of(path) == "pyspark_horolog":
            continue  # a package beside it
        source = (root / path).read_text(encoding="utf-8")
        named = re.search(r"^ *(from|import)\b.*horolog", source, re.MULTILINE)
        for node in ast.walk(ast.parse(source)) if named else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            if any(name.partition(".")[0] == "horolog" for name in names):
                wrong.append(f"{path}:{node.lineno}")  # type: ignore[attr-defined]
    assert wrong == []


def test_every_part_has_its_rule(modules: list[Path]) -> None:
    assert {part_of(path) for path in modules} <= MAY_IMPORT.keys()


def test_the_walk_sees_every_kind_of_import() -> None:
    source = (
        "import a.b\nfrom c import d\nfrom . import e\nfrom .f import g\nfrom ..h.i import j\n"
        "def late():\n    from ... import k\n"
    )
    assert [name for _, name in imports(Path("server/handlers/x.py"), source)] == [
        "a.b",
        "c.d",
        "horolog.server.handlers.e",
        "horolog.server.handlers.f.g",
        "horolog.server.h.i.j",
        "horolog.k",
    ]
