"""The faults of `make mutants` fit the code, and their tests are there."""

import ast
from pathlib import Path

import pytest

from horolog.tests.mutants.run import with_fault
from horolog.tests.mutants.table import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.rule for mutant in MUTANTS])
def test_a_fault_can_be_made_and_its_test_exists(root: Path, mutant: Mutant) -> None:
    source = (root / mutant.file).read_text(encoding="utf-8")
    assert with_fault(mutant, source) != source
    file, _, test = mutant.test.partition("::")
    tests = ast.parse((root / "tests" / file).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert test in {node.name for node in ast.walk(tests) if isinstance(node, functions)}
    assert mutant.compiled == (Path(mutant.file).suffix in (".pyx", ".pxi"))
