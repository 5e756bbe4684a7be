"""The Python of the pages, run as a reader would run it."""

import ast
import asyncio
import codeop
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_EXAMPLE: Final = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def examples(page: Path) -> list[str]:
    """The blocks of Python of a page, from its beginning on."""
    return _EXAMPLE.findall(page.read_text(encoding="utf-8"))


async def run_example(written: str, addresses: Mapping[str, str]) -> None:
    """Run an example: a whole program, or lines for `python -m asyncio`, entered one by one.

    `addresses` says for each address that the page names the one that is used.
    """
    for named, real in addresses.items():
        written = written.replace(named, real)
    if "asyncio.run(" in written:
        program = compile(written, "program", "exec")
        await asyncio.to_thread(exec, program, {"__name__": "__main__"})
    else:
        await _enter(written.splitlines())


async def _enter(lines: list[str]) -> None:
    entered: list[str] = []
    names: dict[str, Any] = {}
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for line in [*lines, ""]:
        entered.append(line)
        code = compiler("\n".join(entered))
        if code is not None:
            entered.clear()
            running = eval(code, names)
            if inspect.isawaitable(running):
                await running
    assert not entered
