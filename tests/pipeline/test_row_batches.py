"""Record batches on their way to Spark: as many rows as are worth it, and no more bytes."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.pipeline.row_batches import SPARK_BYTES, SPARK_ROWS, joined

MIB = 1024 * 1024


def batch(*sizes: int) -> pa.RecordBatch:
    """Values of these sizes."""
    return pa.RecordBatch.from_pydict({"value": pa.array([bytes(size) for size in sizes])})


@given(st.lists(st.lists(st.sampled_from([0, 10, MIB, 3 * MIB, 9 * MIB]), max_size=5), max_size=6))
def test_every_row_once_in_order_and_no_batch_is_too_large(sizes: list[list[int]]) -> None:
    found = list(joined(batch(*some) for some in sizes))
    values = [len(value) for one in found for value in one.column("value").to_pylist()]
    assert values == [size for some in sizes for size in some]
    for one in found:
        assert one.num_rows == 1 or 0 < one.nbytes <= SPARK_BYTES


@pytest.mark.parametrize(("rows", "wanted"), [(1, [50]), (1000, [32_000, 18_000])])
def test_small_batches_are_joined(rows: int, wanted: list[int]) -> None:
    assert SPARK_ROWS == 32_768
    small = batch(*[10] * rows)
    assert [one.num_rows for one in joined([small] * 50)] == wanted


def test_more_bytes_than_an_array_can_have_are_read() -> None:
    offsets = b"".join((number * MIB).to_bytes(4, "little") for number in range(65))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(bytes(64 * MIB))]
    values = pa.Array.from_buffers(pa.binary(), 64, buffers)
    large = pa.RecordBatch.from_arrays([values], names=["value"])
    # 2.5 GiB in all, which are the same 64 MiB.
    assert sum(one.num_rows for one in joined([large] * 40)) == 2560
