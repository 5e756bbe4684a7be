"""`python tests/repo/count.py [--json]`: how the source is cut up, and what is there twice.

files            source files of the product, and of the tests
lines            of the product: statements (lines with code), docstrings, comments, blank ones
imports_up       imports inside `storage/` against the order of its folders (`STORAGE_ORDER`)
cycles           groups of modules that import each other, counting imports behind
                 `TYPE_CHECKING` and inside functions; `in_cycles` are their modules
type_checking    blocks of `if TYPE_CHECKING`
late_imports     imports of our own modules inside functions
twice            class names of the product that stand in more than one module
phrases          phrases of `PHRASES` in Python and Markdown files
"""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]

STORAGE_ORDER: Final = (
    ("files", "names", "events", "stepped_change", "quarantine", "open_files", "seams"),
    ("entries",),
    ("index",),
    ("segment",),
    ("producers",),
    ("log",),
    ("read", "replica"),
    ("directory", "metadata"),
    ("check",),
)
"""Folders and modules of `storage/`, the lowest first; none imports what stands behind it."""

PHRASES: Final = (
    "one of several",
    "who asks",
    "those who",
    "what became of",
    "marks of transactions",
    "the begin",
    "belongs into",
    "belong into",
    "none any more",
)
"""Phrases that say too little to a reader who knows Kafka."""

_NOT_COUNTED: Final = frozenset({Path("tests/repo/count.py")})


class Module(NamedTuple):
    """One source file, parsed."""

    name: str
    """As it is imported, without `horolog.` in front."""
    is_package: bool
    tree: ast.Module


def listed(root: Path) -> list[Path]:
    """Files of the repository, relative to its root."""
    found = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
    )
    return sorted(Path(name) for name in found.stdout.split("\0") if name)


def counted(root: Path, paths: Iterable[Path]) -> dict[str, Any]:
    """Everything that this module counts."""
    paths = [path for path in paths if (root / path).is_file()]
    sources = [path for path in paths if path.suffix == ".py" and path.parts[0] != "docs"]
    product = [path for path in sources if path.parts[0] != "tests"]
    texts = {path: (root / path).read_text(encoding="utf-8") for path in product}
    modules = {module.name: module for path in product for module in [parsed(path, texts[path])]}
    lines: Counter[str] = Counter()
    for path in product:
        lines.update(kinds_of_lines(texts[path]))
    edges = {name: set(imported(module, modules)) for name, module in modules.items()}
    cycles = groups_in_cycles(edges)
    twice = classes_twice(modules)
    phrases = {
        str(path): found
        for path in paths
        if path.suffix in (".py", ".md") and path not in _NOT_COUNTED
        and (found := phrases_in((root / path).read_text(encoding="utf-8")))
    }  # fmt: skip
    return {
        "files": {"product": len(product), "tests": len(sources) - len(product)},
        "lines": dict(lines),
        "imports_up": sorted(imports_up(edges)),
        "cycles": [sorted(group) for group in cycles],
        "in_cycles": sum(map(len, cycles)),
        "type_checking": sum(_type_checking_blocks(one.tree) for one in modules.values()),
        "late_imports": sum(len(list(late_imports(one))) for one in modules.values()),
        "twice": twice,
        "phrases": phrases,
    }


def parsed(path: Path, text: str) -> Module:
    parts = path.with_suffix("").parts
    is_package = parts[-1] == "__init__"
    return Module(".".join(parts[:-1] if is_package else parts), is_package, ast.parse(text))


def kinds_of_lines(text: str) -> Counter[str]:
    """Lines of a source file by kind; one with code and a comment is code."""
    kinds = dict.fromkeys(range(1, text.count("\n") + 1), "blank")
    for node in ast.walk(ast.parse(text)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            ends = value.end_lineno or value.lineno
            kinds.update(dict.fromkeys(range(value.lineno, ends + 1), "docstring"))
    silent = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        for line in range(token.start[0], token.end[0] + 1):
            if token.type == tokenize.COMMENT and kinds[line] == "blank":
                kinds[line] = "comment"
            elif token.type not in silent | {tokenize.COMMENT} and kinds[line] != "docstring":
                kinds[line] = "code"
    return Counter(kinds.values())


def imported(module: Module, modules: Mapping[str, Module]) -> Iterator[str]:
    """Our modules that a module imports, wherever the import stands."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield from _imported_by(node, module, modules)


def _imported_by(
    node: ast.ImportFrom, module: Module, modules: Mapping[str, Module]
) -> Iterator[str]:
    parts = module.name.split(".") if module.name else []
    package = parts if module.is_package else parts[:-1]
    start = package[: len(package) - node.level + 1]
    base = ".".join((*start, *([node.module] if node.module else ())))
    for alias in node.names:
        name = f"{base}.{alias.name}" if base else alias.name
        found = name if name in modules else base
        if found in modules and found != module.name:
            yield found


def late_imports(module: Module) -> Iterator[ast.ImportFrom]:
    """Imports of our own modules inside functions."""
    for function in ast.walk(module.tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom) and node.level:
                    yield node


def imports_up(edges: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Imports inside `storage/` of what stands behind the importing folder."""
    ranks = {name: rank for rank, names in enumerate(STORAGE_ORDER) for name in names}

    def rank_of(name: str) -> int | None:
        room, _, rest = name.partition(".")
        return ranks.get(rest.partition(".")[0]) if room == "storage" else None

    for name, targets in edges.items():
        for target in targets:
            own, other = rank_of(name), rank_of(target)
            if own is not None and other is not None and other > own:
                yield f"{name} -> {target}"


def groups_in_cycles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of modules that import each other, the largest first (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []
    for start in edges:
        if start in order:
            continue
        work = [(start, iter(sorted(edges[start])))]
        order[start] = low[start] = len(order)
        stack.append(start)
        while work:
            name, targets = work[-1]
            for target in targets:
                if target not in order:
                    order[target] = low[target] = len(order)
                    stack.append(target)
                    work.append((target, iter(sorted(edges[target]))))
                    break
                if target in stack:
                    low[name] = min(low[name], order[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == order[name]:
                    at = stack.index(name)
                    group, stack[at:] = stack[at:], []
                    if len(group) > 1:
                        groups.append(group)
    return sorted(groups, key=len, reverse=True)


def classes_twice(modules: Mapping[str, Module]) -> dict[str, list[str]]:
    """Names of classes at the top of more than one module."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for name, module in modules.items():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    return {name: sorted(where) for name, where in sorted(places.items()) if len(where) > 1}


def phrases_in(text: str) -> dict[str, int]:
    """How often each phrase stands in a text, across line ends too."""
    plain = re.sub(r"[\s#]+", " ", text).lower()
    found = {phrase: len(re.findall(rf"\b{phrase}\b", plain)) for phrase in PHRASES}
    return {phrase: count for phrase, count in found.items() if count}


def _type_checking_blocks(tree: ast.Module) -> int:
    return sum(
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        for node in ast.walk(tree)
    )


def _row(name: str, value: Any) -> str:
    if name == "phrases":
        value = sum(sum(each.values()) for each in value.values())
    elif name in ("imports_up", "cycles", "twice"):
        value = len(value)
    elif isinstance(value, dict):
        value = ", ".join(f"{kind} {count:,}" for kind, count in value.items())
    return f"{name:<15} {value}"


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--json"]):
        sys.stderr.write("usage: python tests/repo/count.py [--json]\n")
        return 2
    found = counted(ROOT, listed(ROOT))
    rows = (_row(name, value) for name, value in found.items())
    sys.stdout.write(json.dumps(found, indent=1) if arguments else "\n".join(rows))
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
