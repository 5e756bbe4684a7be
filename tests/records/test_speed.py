"""What compiling has to gain: ratios of processor time within one run, far from what is usual.

They catch a type that got lost in a `.pxd`, after which every number is a Python object again.
"""

import pytest

from horolog.bench.kernel import Cost, costs

pytestmark = pytest.mark.parametrize("form", ["compiled"], indirect=True)

AT_LEAST = {
    "walk": 8,
    "walk, many latencies": 8,
    "walk, one message": 1.5,
    "first offset at a time": 8,
    "encode": 4,
    "columns": 8,
    "append times": 8,
    "records: check": 3,
    "records: encode": 4,
    "records: columns": 3,
    "records to v1": 3,
}


@pytest.fixture(scope="module")
def measured() -> list[Cost]:
    return list(costs(tries=6))


@pytest.mark.parametrize("what", AT_LEAST)
def test_the_compiled_form_is_this_many_times_as_fast(what: str, measured: list[Cost]) -> None:
    ratios = [cost.ratio for cost in measured if cost.what == what]
    assert max(ratios) >= AT_LEAST[what]
