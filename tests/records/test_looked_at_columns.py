"""What is looked at in columns that are to be sent, in both forms of the kernel."""

from typing import Any

import pytest

from horolog.protocol.records import kernel
from horolog.protocol.records.kernel import reference

FORMS: list[Any] = [pytest.param(kernel, id=kernel.FORM), pytest.param(reference, id="reference")]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("keys", "more_bytes", "start"),
    [([b"k"], None, 0), (None, [1], 0), ([b"k", b"k"], [], 1), (None, None, -1)],
)
def test_columns_that_are_too_short(
    form: Any, keys: list[bytes] | None, more_bytes: list[int] | None, start: int
) -> None:
    with pytest.raises(ValueError, match=r"fewer rows|begin at 0"):
        form.rows_within([b"v", b"v"], keys, more_bytes, start, 0, 100)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("more_bytes", [-1, -(2**63), 2**40 + 1, 2**63 - 1])
def test_no_row_has_so_many_more_bytes(form: Any, more_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"from 0 to 1099511627776 more bytes, not {more_bytes}$"):
        form.rows_within([b"v", b"v"], None, [2**40, more_bytes], 0, 0, 2**41)


@pytest.mark.parametrize("form", FORMS)
def test_the_first_row_may_be_larger_than_the_limit(form: Any) -> None:
    values = [b"long", None, b"v", b"long"]
    assert form.rows_within(values, None, None, 0, 2, 3) == (1, 6)
    assert form.rows_within(values, None, None, 1, 2, 5) == (3, 5)
    assert form.rows_within(values, None, [0, 1, 0, 0], 1, 2, 5) == (2, 3)
    assert form.rows_within(values, None, None, 3, 2, 3) == (4, 6)
    assert form.rows_within(values, None, None, 4, 2, 5) == (4, 0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("column", "good"),
    [
        ([], True),
        ([5, 5, 7, 7], True),
        ([None], False),
        ([None, None], False),
        ([5, 5, None], False),
        ([5, True], False),
        ([5, 8], False),
        ([2**70], False),
    ],
)
def test_times(form: Any, column: list[Any], good: bool) -> None:
    assert form.only_times(column, 0, 7) is good
