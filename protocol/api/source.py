"""Builds functions from source text, to compute once what would be slow to find out for every
message."""

from collections.abc import Mapping
from typing import Any


class Source:
    """The lines of one function, and the names that they use."""

    def __init__(self, head: str, names: Mapping[str, object]) -> None:
        """`head` is the function's first line, `def NAME(...):`."""
        self._lines = [head]
        self._names = dict(names)
        self._depth = 1

    def add(self, line: str) -> None:
        """Append a line. After a line that ends with a colon, call `indent`."""
        self._lines.append("    " * self._depth + line)

    def indent(self) -> None:
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1

    def name(self, value: object) -> str:
        """Return a name for a value that has no literal."""
        name = f"constant_{len(self._names)}"
        self._names[name] = value
        return name

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    def function(self, origin: str) -> Any:
        """Return the function. `origin` appears in its tracebacks."""
        exec(compile(self.text, f"<{origin}>", "exec"), self._names)
        return self._names[self._lines[0].removeprefix("def ").partition("(")[0]]
