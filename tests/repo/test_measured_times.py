"""No test asserts how long something took: a machine with other work takes any time for it.

A test waits for what it is about, moves a clock, or counts bytes, calls and steps. What ends a wait
for ever is a timeout, which raises.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS}
"""Functions of the module `time` that read a clock of the machine."""

USED_TIMES = {"ru_utime", "ru_stime"}
"""Processor time, as `resource.getrusage` has it."""

ARITHMETIC = {"abs", "float", "int", "max", "median", "min", "round", "sorted", "sum"}
"""Functions whose result is a time if an argument is one."""


class Measured(IntEnum):
    """What an expression has of the machine's clocks."""

    NOTHING = 0
    INSTANT = 1
    LENGTH = 2


@dataclass(slots=True)
class Names:
    """What the names of a module have, as far as it was read."""

    imported: set[str] = field(default_factory=set)
    """Clocks that are imported by their names."""
    clocks: set[str] = field(default_factory=set)
    """Names of the machine's clock, `SystemClock`."""
    known: dict[str, Measured] = field(default_factory=dict)

    def learn(self, name: str, found: Measured) -> bool:
        """Whether that is new."""
        before = self.known.get(name, Measured.NOTHING)
        self.known[name] = max(before, found)
        return found > before


def name_of(node: ast.expr) -> str:
    """A name, or the last part of one with dots."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f".{node.attr}"
    if isinstance(node, ast.Subscript | ast.Starred):
        return name_of(node.value)
    return ""


def reads_a_clock(call: ast.Call, names: Names) -> bool:
    match call.func:
        case ast.Name(id=name):
            return name in names.imported
        case ast.Attribute(value=ast.Name(id="time"), attr=name):
            return name in CLOCKS
        case ast.Attribute(value=value, attr="time"):
            return not call.args and "loop" in ast.unparse(value)
        case ast.Attribute(value=value, attr="monotonic"):
            text = ast.unparse(value)
            return text.endswith("SystemClock()") or text in names.clocks
    return False


def measured(node: ast.AST, names: Names) -> Measured:
    """What an expression has of the machine's clocks."""
    match node:
        case ast.Call():
            return measured_call(node, names)
        case ast.BinOp(left=left, op=op, right=right):
            sides = measured(left, names), measured(right, names)
            return Measured.LENGTH if isinstance(op, ast.Sub) and all(sides) else max(sides)
        case ast.Attribute(attr=attr) if attr in USED_TIMES:
            return Measured.LENGTH
        case ast.Name() | ast.Attribute() | ast.Subscript():
            return names.known.get(name_of(node), Measured.NOTHING)
        case ast.Await(value=inner) | ast.NamedExpr(value=inner) | ast.UnaryOp(operand=inner):
            return measured(inner, names)
        case ast.IfExp(body=body, orelse=orelse):
            return max(measured(body, names), measured(orelse, names))
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            return max((measured(one, names) for one in elts), default=Measured.NOTHING)
        case ast.ListComp(elt=inner) | ast.GeneratorExp(elt=inner):
            return measured(inner, names)
    return Measured.NOTHING


def measured_call(call: ast.Call, names: Names) -> Measured:
    if reads_a_clock(call, names):
        return Measured.INSTANT
    function = name_of(call.func)
    if function.removeprefix(".") in ARITHMETIC:
        return max((measured(one, names) for one in call.args), default=Measured.NOTHING)
    return names.known.get(f"{function}()", Measured.NOTHING)


def assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(what, the value) of a statement that gives names to values."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from pairs(target, value)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value
        case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
            yield target, value
        case ast.Call(func=ast.Attribute(value=target, attr="append" | "add"), args=[value]):
            yield target, value
        case (
            ast.For(target=target, iter=iterated) | ast.comprehension(target=target, iter=iterated)
        ):
            yield target, iterated


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=False):
            yield from pairs(one, its)
    elif isinstance(target, ast.Tuple):
        for one in target.elts:
            yield one, value
    else:
        yield target, value


def learned(tree: ast.Module) -> Names:
    """Which names of a module have times that were measured."""
    names = Names()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            names.imported |= {alias.asname or alias.name for alias in node.names} & CLOCKS
        for target, value in assigned(node):
            if ast.unparse(value) == "SystemClock()":
                names.clocks.add(ast.unparse(target))
    while sum(learn_from(node, names) for node in ast.walk(tree)):
        pass  # Until nothing more follows from what is known.
    return names


def learn_from(node: ast.AST, names: Names) -> bool:
    """Whether a node says more about names than is known."""
    grows = [
        names.learn(name_of(target), measured(value, names))
        for target, value in assigned(node)
        if name_of(target)
    ]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for inner in ast.walk(node):
            if isinstance(inner, ast.Return) and inner.value is not None:
                found = measured(inner.value, names)
                grows += [names.learn(f"{dot}{node.name}()", found) for dot in ("", ".")]
    return any(grows)


def is_judged(compared: ast.Compare, names: Names) -> bool:
    """Whether a comparison is of a length of time that was measured: of two readings, or of one
    with a number."""
    sides = [compared.left, *compared.comparators]
    found = [measured(side, names) for side in sides]
    if Measured.LENGTH in found:
        return True
    for (left, one), (right, other) in zip(
        zip(sides, found, strict=True), list(zip(sides, found, strict=True))[1:], strict=False
    ):
        if one and other:
            return True
        if (one and isinstance(right, ast.Constant)) or (other and isinstance(left, ast.Constant)):
            return True
    return False


def judgements(tree: ast.Module) -> list[int]:
    """Lines that fail a test for the time that something took."""
    names = learned(tree)
    lines = []
    for node in ast.walk(tree):
        fails = isinstance(node, ast.If) and any(
            isinstance(one, ast.Raise) or "pytest.fail" in ast.unparse(one) for one in node.body
        )
        if isinstance(node, ast.Assert | ast.If) and (isinstance(node, ast.Assert) or fails):
            lines += [
                inner.lineno
                for inner in ast.walk(node.test)
                if isinstance(inner, ast.Compare) and is_judged(inner, names)
            ]
    return sorted(lines)


def test_no_test_judges_measured_time(root: Path, sources: list[Path]) -> None:
    wrong = []
    for path in sources:
        if path.suffix == ".py" and path.parts[0] == "tests":
            tree = ast.parse((root / path).read_text("utf-8"))
            wrong += [f"{path}:{line}" for line in judgements(tree)]
    assert wrong == []
