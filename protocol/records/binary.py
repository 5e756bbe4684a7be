"""Byte strings in a column."""

from itertools import pairwise

from ...values import value_class
from .layout import Buffer


@value_class
class BinaryColumn:
    """Byte strings, some of them null, as Apache Arrow lays out `binary`."""

    offsets: Buffer
    """int32, one more than there are strings: where in `data` each begins, and the last ends."""
    data: Buffer
    valid: Buffer | None
    """A bit per string, the lowest of the first byte first: 0 for null. `None` if none is."""
    nulls: int

    def contents(self) -> list[bytes | None]:
        """The strings."""
        data = bytes(self.data)
        ends = memoryview(self.offsets).cast("B").cast("i").tolist()
        found: list[bytes | None] = [data[start:end] for start, end in pairwise(ends)]
        if self.valid is not None:
            for row in range(len(found)):
                if not self.valid[row >> 3] >> (row & 7) & 1:
                    found[row] = None
        return found
