"""A look over a msgpack frame before it is unpacked: how many values, how deeply nested.

Unpacking turns a byte into as much as 70, so what an unpacker may allocate is bounded here,
by the frame's own structure, and nothing is allocated to find out.
"""

from ...limits import MAX_DEPTH
from ...records.kernel import packed_fault


def find_fault(
    data: bytes | bytearray | memoryview, max_values: int, outer_depth: int = 0
) -> str | None:
    """Say what keeps `data` from being one msgpack value within the limits; None when it is.

    `outer_depth` is how many containers there are around it. The depth that is named in a fault is
    that of the frame.
    """
    fault = packed_fault(data, max_values, MAX_DEPTH - outer_depth)
    if outer_depth and fault == f"it is nested more than {MAX_DEPTH - outer_depth} deep":
        return f"it is nested more than {MAX_DEPTH} deep"
    return fault
