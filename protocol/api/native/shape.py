"""Checks a msgpack frame before it is unpacked: how many values it has, and how deeply nested.

Unpacking can turn one byte into 70. The check bounds what an unpacker may allocate, by the
structure of the frame, and allocates nothing itself.
"""

from ...limits import MAX_DEPTH
from ...records.kernel import packed_fault


def find_fault(
    data: bytes | bytearray | memoryview, max_values: int, outer_depth: int = 0
) -> str | None:
    """Return why `data` is not one msgpack value within the limits; `None` if it is.

    `outer_depth`: the number of containers around it. A fault names the depth in the whole frame.
    """
    fault = packed_fault(data, max_values, MAX_DEPTH - outer_depth)
    if outer_depth and fault == f"it is nested more than {MAX_DEPTH - outer_depth} deep":
        return f"it is nested more than {MAX_DEPTH} deep"
    return fault
