"""A column of byte strings."""

from itertools import pairwise

from ...values import value_class
from .layout import Buffer


@value_class
class BinaryColumn:
    """Byte strings, some of them null, in the layout of Apache Arrow's `binary`."""

    offsets: Buffer
    """int32, one more than there are strings: the start of each in `data`, then the end of the
    last."""
    data: Buffer
    valid: Buffer | None
    """One bit per string, lowest bit first: 0 for null. `None` if no string is null."""
    nulls: int

    def contents(self) -> list[bytes | None]:
        """Return the strings as a list."""
        data = bytes(self.data)
        ends = memoryview(self.offsets).cast("B").cast("i").tolist()
        found: list[bytes | None] = [data[start:end] for start, end in pairwise(ends)]
        if self.valid is not None:
            for row in range(len(found)):
                if not self.valid[row >> 3] >> (row & 7) & 1:
                    found[row] = None
        return found
