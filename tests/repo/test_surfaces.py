"""An error names what its reader can do: flags of the command line are for the command line."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")

MEANT = {
    # The settings of a broker, each with its flag.
    "config/cluster_table.py",
    "config/broker.py",
    "server/reference.py",
    "server/replication/cluster_admin.py",
    "server/replication/etcd/client.py",
    "server/replication/etcd/store.py",
    "server/replication/etcd/election.py",
    "server/replication/member_files.py",
    "server/replication/membership.py",
    "server/replication/service.py",
    "storage/directory/directory_opening.py",
    "storage/directory/lock.py",
    # What `horolog pipeline doctor`, `bootstrap` and `env` say to do next, and Java's own options.
    "pipeline/java.py",
    "pipeline/jobs/machine.py",
    "pipeline/jobs/bootstrap.py",
}
"""Modules that know that their reader is at a command line, or name a setting beside it."""


def texts(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of what a program can show: all strings that are no docstrings."""
    tree = ast.parse(source)
    told = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


def test_only_the_command_line_names_its_flags(root: Path, modules: list[Path]) -> None:
    parts = {"client", "config", "pipeline", "protocol", "server", "storage"}
    found = [
        f"{path}:{line}: {text}"
        for path in modules
        if (path.parts[0] in parts or len(path.parts) == 1) and path.as_posix() not in MEANT
        for source in [(root / path).read_text(encoding="utf-8")]
        if FLAG.search(source)
        for line, text in texts(source)
        if FLAG.search(text)
    ]
    assert found == []
