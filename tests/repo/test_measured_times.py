"""No test judges how long something took: on a machine with other work it may take any time.

A test waits for what it is about, moves a clock, or counts bytes, calls and steps. What ends a wait
for ever is a time limit, which raises.

The names of a module are followed, not what goes from one module to another.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from pathlib import Path

import pytest

CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS}
"""Functions of the module `time` that read a clock of the machine."""

USED_TIMES = {"ru_utime", "ru_stime"}
"""Processor time, as `resource.getrusage` has it."""

PASSING = {
    *("abs", "float", "int", "max", "median", "min", "round", "sorted", "sum", "zip"),
    *("gather", "run", "to_thread", "wait_for"),
}
"""Functions that return a time when they are given one, or who returns one."""

FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Await: ("value",),
    ast.GeneratorExp: ("elt",),
    ast.IfExp: ("body", "orelse"),
    ast.List: ("elts",),
    ast.ListComp: ("elt",),
    ast.NamedExpr: ("value",),
    ast.Starred: ("value",),
    ast.Tuple: ("elts",),
    ast.UnaryOp: ("operand",),
}
"""Where an expression has a time when one of its parts is one."""

A_CLOCK = re.compile(r"\b(?:import time|from time|SystemClock|ru_utime|ru_stime)\b|loop.*\.time\(")
"""A module without it needs no closer look."""

ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


class Measured(IntEnum):
    """What an expression has of the machine's clocks."""

    NOTHING = 0
    INSTANT = 1
    LENGTH = 2


@dataclass(slots=True)
class Names:
    """What the names of a module have, as far as it was read. A function's is `f()`, that of a part
    of what it returns `f()[0]`, that of an attribute `.a`."""

    imported: set[str] = field(default_factory=set)
    """Clocks that are imported by their names."""
    clocks: set[str] = field(default_factory=set)
    """Names of the machine's clock, `SystemClock`."""
    known: dict[str, Measured] = field(default_factory=dict)

    def learn(self, name: str, found: Measured) -> bool:
        """Whether that is new."""
        new = bool(name) and found > self.known.get(name, Measured.NOTHING)
        if new:
            self.known[name] = found
        return new

    def of(self, node: ast.expr) -> Measured:
        if isinstance(node, ast.Call):
            return self._of_call(node)
        if isinstance(node, ast.BinOp):
            sides = self.of(node.left), self.of(node.right)
            is_length = isinstance(node.op, ast.Sub) and all(sides)
            return Measured.LENGTH if is_length else max(sides)
        if isinstance(node, ast.Attribute) and node.attr in USED_TIMES:
            return Measured.LENGTH
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            return self.known.get(name_of(node), Measured.NOTHING)
        return max(map(self.of, parts(node)), default=Measured.NOTHING)

    def _of_call(self, call: ast.Call) -> Measured:
        if self._reads_a_clock(call.func):
            return Measured.INSTANT
        name = name_of(call.func)
        if name.removeprefix(".") not in PASSING:
            return self.known.get(f"{name}()", Measured.NOTHING)
        given = [self.of(one) for one in call.args]
        given += [self.known.get(f"{name_of(one)}()", Measured.NOTHING) for one in call.args]
        return max(given, default=Measured.NOTHING)

    def _reads_a_clock(self, function: ast.expr) -> bool:
        match function:
            case ast.Name(id=name):
                return name in self.imported
            case ast.Attribute(value=ast.Name(id="time"), attr=name):
                return name in CLOCKS
            case ast.Attribute(value=value, attr="time"):
                return "loop" in ast.unparse(value)
            case ast.Attribute(value=value, attr="monotonic" | "now_ms"):
                text = ast.unparse(value)
                return text == "SystemClock()" or text in self.clocks
        return False


def name_of(node: ast.expr) -> str:
    """A name, or the last part of one with dots; empty for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return f".{name}"
        case ast.Subscript(value=value) | ast.Starred(value=value):
            return name_of(value)
    return ""


def parts(node: ast.expr) -> Iterator[ast.expr]:
    for name in FIELDS.get(type(node), ()):
        found = getattr(node, name)
        yield from found if isinstance(found, list) else (found,)


def assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(what, the value) where a name, an attribute or a list gets a value."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield target, value
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value
        case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
            yield target, value
        case ast.Call(func=ast.Attribute(value=target, attr="append" | "add"), args=[value]):
            yield target, value
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            yield target, value


def gained(names: Names, target: ast.expr, value: ast.expr) -> bool:
    """Take note of an assignment; whether it tells anything new."""
    if not isinstance(target, ast.Tuple):
        return names.learn(name_of(target), names.of(value))
    if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
        both = zip(target.elts, value.elts, strict=True)
        return sum(gained(names, *pair) for pair in both) > 0
    called = called_in(value)
    new = 0
    for place, one in enumerate(target.elts):
        found = names.known.get(f"{called}()[{place}]", names.of(value))
        new += names.learn(name_of(one), found)
    return new > 0


def called_in(value: ast.expr) -> str:
    """The function whose result an expression has."""
    while isinstance(value, ast.Await):
        value = value.value
    if not isinstance(value, ast.Call):
        return name_of(value)
    called = name_of(value.func)
    is_passing = called.removeprefix(".") in PASSING and len(value.args) > 0
    return called_in(value.args[0]) if is_passing else called


def returned(names: Names, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Take note of what a function returns; whether that tells anything new."""
    new = 0
    for node in ast.walk(function):
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        places = {"": node.value}
        if isinstance(node.value, ast.Tuple):
            places = {f"[{place}]": one for place, one in enumerate(node.value.elts)}
        for place, value in places.items():
            for called in (function.name, f".{function.name}"):
                new += names.learn(f"{called}(){place}", names.of(value))
    return new > 0


def learned(tree: ast.Module) -> Names:
    """Which names of a module have times that were measured."""
    names, nodes = Names(), list(ast.walk(tree))
    pairs = [pair for node in nodes for pair in assigned(node)]
    functions = [one for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            clocks = (alias for alias in node.names if alias.name in CLOCKS)
            names.imported |= {alias.asname or alias.name for alias in clocks}
    names.clocks |= {ast.unparse(what) for what, value in pairs if is_system_clock(value)}
    growing = True
    while growing:
        new = sum(gained(names, *pair) for pair in pairs)
        growing = new + sum(returned(names, function) for function in functions) > 0
    return names


def is_system_clock(value: ast.expr) -> bool:
    return ast.unparse(value) == "SystemClock()"


def is_judged(compared: ast.Compare, names: Names) -> bool:
    """Whether a length of time that was measured is compared with anything, two readings with each
    other, or one with a number."""
    sides = [compared.left, *compared.comparators]
    for operator, (left, right) in zip(compared.ops, pairwise(sides), strict=True):
        found = {names.of(left), names.of(right)}
        numbers = any(isinstance(side, ast.Constant) for side in (left, right))
        if isinstance(operator, ORDERINGS) and (
            Measured.LENGTH in found
            or found == {Measured.INSTANT}
            or (Measured.INSTANT in found and numbers)
        ):
            return True
    return False


def judgements(tree: ast.Module) -> list[int]:
    """Lines that fail a test for the time that something took."""
    names, lines = learned(tree), []
    for node in ast.walk(tree):
        fails = isinstance(node, ast.If) and any(
            isinstance(one, ast.Raise) or "pytest.fail(" in ast.unparse(one) for one in node.body
        )
        if isinstance(node, ast.Assert) or (fails and isinstance(node, ast.If)):
            compared = (one for one in ast.walk(node.test) if isinstance(one, ast.Compare))
            lines += [one.lineno for one in compared if is_judged(one, names)]
    return sorted(lines)


def test_no_test_judges_measured_time(root: Path, sources: list[Path]) -> None:
    wrong = []
    for path in sources:
        if path.suffix == ".py" and path.parts[0] == "tests":
            text = (root / path).read_text("utf-8")
            if A_CLOCK.search(text):
                wrong += [f"{path}:{line}" for line in judgements(ast.parse(text))]
    assert wrong == []


@pytest.mark.parametrize(
    "source",
    [
        "began = time.monotonic(); assert time.monotonic() - began < 5",
        "from time import perf_counter as now; began = now(); assert 3 > now() - began",
        "began = asyncio.get_running_loop().time(); assert loop.time() - began >= 0.2",
        "until = time.monotonic() + 5; assert time.monotonic() < until",
        "c = SystemClock(); a = c.monotonic(); took = c.monotonic() - a; assert took < 2",
        "ratio = (time.time() - a) / (time.time() - b); assert ratio < 2; a = b = time.time()",
        "a = time.process_time_ns(); used = time.process_time_ns() - a; assert round(used) <= 9",
        "assert resource.getrusage(0).ru_utime < 1",
        "def took(): began = time.time(); return time.time() - began\nassert took() < 3",
        "def both(): a = time.time(); return 7, time.time() - a\nn, took = both(); assert took < 3",
        "async def f(): a = time.time(); return 7, time.time() - a\n"
        "n, took = asyncio.run(f()); assert took < 3",
        "def g(): a = time.time(); return 7, time.time() - a\n"
        "n, took = run(asyncio.to_thread(g)); assert took < 3",
        "self.all.append(time.monotonic() - a); a = time.monotonic(); assert max(self.all) < 4",
        "times = []; times.append(time.time())\n"
        "assert max(b - a for a, b in zip(times, times[1:])) < 2",
        "a = time.time()\nif time.time() - a > 3: pytest.fail('slow')",
        "a = SystemClock().now_ms()\nif SystemClock().now_ms() - a > 3: raise AssertionError",
    ],
)
def test_the_check_sees(source: str) -> None:
    assert judgements(ast.parse(source)) != []


@pytest.mark.parametrize(
    "source",
    [
        "began = time.monotonic()\nwhile time.monotonic() - began < 5: ask()",
        "until = time.monotonic() + 5\nwhile time.monotonic() < until: ask()",
        "before = SystemClock().now_ms(); sent = send(); assert before <= sent <= now(); ",
        "now_ms = SystemClock().now_ms(); assert read(now_ms - 5) == [now_ms]",
        "assert clock.monotonic() - 3 < 5",
        "def both(): a = time.time(); return 7, time.time() - a\nn, took = both(); assert n < 3",
        "assert folder.times() == [1]",
    ],
)
def test_the_check_leaves_alone(source: str) -> None:
    """Pacing, times as input, times that a program says, and clocks that a test moves."""
    assert judgements(ast.parse(source)) == []
