"""`python tests/repo/sample_docs.py [--seed N]`: 30 docstrings and 10 paragraphs, drawn at random.

A reader who sees nothing else says what each one means. What the reader cannot say is rewritten.
Docstrings are those of the product; paragraphs are those of README.md and `docs/`, without code,
tables and headings.
"""

import argparse
import ast
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from horolog.tests.repo.count import ROOT, listed

DOCSTRINGS: Final = 30
PARAGRAPHS: Final = 10

_FEWEST_WORDS: Final = 8
_NO_PROSE: Final = re.compile(r"\A(?:[#|>`<!]|    )")


def docstrings(path: Path, text: str) -> Iterator[tuple[str, str]]:
    """Each docstring of a module: its place, and the text. Those of attributes count too."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for stands in node.body:
            match stands:
                case ast.Expr(value=ast.Constant(value=str() as said)):
                    yield f"{path}:{stands.lineno} {getattr(node, 'name', '')}".rstrip(), said


def paragraphs(path: Path, text: str) -> Iterator[tuple[str, str]]:
    """Each paragraph of a page that is prose: its place, and the text."""
    without_code = re.sub(
        r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), text, flags=re.S | re.M
    )
    line = 1
    for part in re.split(r"(\n\s*\n)", without_code):
        if part.strip() and not _NO_PROSE.match(part) and len(part.split()) >= _FEWEST_WORDS:
            yield f"{path}:{line}", part.strip()
        line += part.count("\n")


def sample(root: Path, seed: int) -> list[tuple[str, str]]:
    """The docstrings and the paragraphs that `seed` draws, each with its place."""
    found: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
    for path in listed(root):
        if path.suffix == ".py" and path.parts[0] not in ("tests", "docs"):
            found[0].extend(docstrings(path, (root / path).read_text(encoding="utf-8")))
        elif path.suffix == ".md" and (path.parts[0] == "docs" or path.name == "README.md"):
            found[1].extend(paragraphs(path, (root / path).read_text(encoding="utf-8")))
    drawn = random.Random(seed)
    return drawn.sample(found[0], DOCSTRINGS) + drawn.sample(found[1], PARAGRAPHS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw docstrings and paragraphs of the docs.")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    seed = parser.parse_args().seed
    lines = [f"seed {seed}"]
    for number, (place, text) in enumerate(sample(ROOT, seed), 1):
        lines.append(f"\n[{number}] {place}\n{text.strip()}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
