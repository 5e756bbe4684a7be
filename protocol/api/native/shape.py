"""A look over a msgpack frame before it is unpacked: how many values, how deeply nested.

Unpacking turns a byte into as much as 70, so what an unpacker may allocate is bounded here,
by the frame's own structure, and nothing is allocated to find out.
"""

from typing import Final

from ...limits import MAX_DEPTH

_FIXED_BYTES: Final = {
    0xC0: 0,  # nil
    0xC2: 0,  # false
    0xC3: 0,  # true
    0xCA: 4,  # float
    0xCB: 8,
    0xCC: 1,  # unsigned
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,  # signed
    0xD1: 2,
    0xD2: 4,
    0xD3: 8,
}
"""Bytes that follow the first one of a value of fixed size."""

_SIZE_BYTES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Bytes of the size field of binary and string values."""

_COUNT_BYTES: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Bytes of the count field of arrays and maps, and values an item stands for."""


def find_fault(  # noqa: C901, PLR0912 - one loop over bytes
    data: bytes | bytearray | memoryview, max_values: int, outer_depth: int = 0
) -> str | None:
    """Say what keeps `data` from being one msgpack value within the limits; None when it is.

    `outer_depth` is how many containers there are around it.

    Extension types are a fault too: the protocol has none.
    """
    size = len(data)
    position = 0
    values = 0
    due = 1  # values still to come in the innermost container
    outer: list[int] = []  # the same of the containers around it
    while True:
        while due == 0:
            if not outer:
                return None if position == size else f"{size - position} bytes follow its end"
            due = outer.pop()
        due -= 1
        values += 1
        if position >= size:
            return "it ends in the middle of a value"
        first = data[position]
        position += 1
        if first < 0x80 or first >= 0xE0:
            continue
        if first >= 0xA0:
            if first < 0xC0:
                position += first & 0x1F
                continue
            if (fixed := _FIXED_BYTES.get(first)) is not None:
                position += fixed
                continue
            if (width := _SIZE_BYTES.get(first)) is not None:
                position += width + int.from_bytes(data[position : position + width], "big")
                continue
            if first not in _COUNT_BYTES:
                return f"it holds a value of type 0x{first:02x}, which the protocol does not use"
            width, per_item = _COUNT_BYTES[first]
            count = per_item * int.from_bytes(data[position : position + width], "big")
            position += width
        elif first < 0x90:
            count = 2 * (first & 0x0F)
        else:
            count = first & 0x0F
        if count > size - position:
            return "it ends in the middle of an array or a map"
        if values + count > max_values:
            return f"it holds more than {max_values} values"
        if len(outer) + outer_depth == MAX_DEPTH:
            return f"it is nested more than {MAX_DEPTH} deep"
        outer.append(due)
        due = count
