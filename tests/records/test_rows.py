"""Columns that are given to be sent: what is in them, and how long their rows are."""

from array import array
from collections import UserList
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.records.kernel import only_bytes, only_times, row_ends

CONTENTS = st.none() | st.binary(max_size=40)


class Lying(UserList[Any]):
    """Says that it is longer or shorter than it is."""

    def __init__(self, items: Sequence[Any], told: int) -> None:
        super().__init__(items)
        self.told = told

    def __len__(self) -> int:
        return self.told

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)


class Bytes(bytes):
    pass


class Number(int):
    pass


@given(st.lists(CONTENTS))
def test_bytes_and_none(column: list[bytes | None]) -> None:
    assert only_bytes(column)
    assert only_bytes(tuple(column))
    for other in ("text", bytearray(b"b"), Bytes(b"b"), 1):
        assert not only_bytes([*column, other])
        assert not only_bytes([other, *column])


@given(st.lists(st.integers(-1, 1000)))
def test_times(column: list[int]) -> None:
    assert only_times(column, -1, 1000)
    assert only_times(array("q", column), -1, 1000)
    for other in (-2, 1001, 2**63, -(2**63) - 1, 2**200, True, Number(5), 5.0, "5", None):
        assert not only_times([*column, other], -1, 1000)  # type: ignore[list-item]
        assert not only_times([other, *column], -1, 1000)  # type: ignore[list-item]


def test_times_up_to_the_largest() -> None:
    assert only_times([-(2**63), 2**63 - 1], -(2**63), 2**63 - 1)


@given(st.lists(st.tuples(CONTENTS, CONTENTS)), st.integers(0, 100))
def test_row_ends(rows: list[tuple[bytes | None, bytes | None]], overhead: int) -> None:
    values, keys = [value for value, _ in rows], [key for _, key in rows]
    sizes = [overhead + len(value or b"") for value in values]
    assert list(row_ends(values, None, overhead)) == list(accumulate(sizes))
    sizes = [size + len(key or b"") for size, key in zip(sizes, keys, strict=True)]
    assert list(row_ends(tuple(values), keys, overhead)) == list(accumulate(sizes))


@pytest.mark.parametrize("keys", [[], [b"k"], [b"k"] * 3])
def test_columns_of_other_lengths(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="of which there are 2"):
        row_ends([b"a", b"b"], keys, 0)


@pytest.mark.parametrize("told", [1, 3])
@pytest.mark.parametrize("liar", ["values", "keys"])
def test_columns_that_lie_about_their_length(liar: str, told: int) -> None:
    """Room is made for as many as they say."""
    items = [b"a", b"b"]
    lying: Any = Lying(items, told)
    honest: Any = [b"a"] * told
    with pytest.raises(ValueError, match=f"of which there are {told}"):
        row_ends(lying if liar == "values" else honest, lying if liar == "keys" else None, 10)
