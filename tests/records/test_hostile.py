"""Every function of the kernel in both forms, on bytes and numbers that mean harm."""

import pytest
from hypothesis import given

from horolog.protocol.records import kernel
from horolog.protocol.records.kernel import reference
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.tests.properties.examples import examples
from horolog.tests.records.conftest import KERNEL, form_of
from horolog.tests.records.hostile import ANSWERS, CALLS, INT64_MAX, LARGE, Drawn, drawn

pytestmark = pytest.mark.parametrize("form", ["compiled"], indirect=True)


def test_every_name_is_asked() -> None:
    assert set(CALLS) | ANSWERS == set(KERNEL)
    assert all(getattr(kernel, name) is getattr(form_of(kernel.FORM), name) for name in KERNEL)


@examples(400)
@given(these=drawn)
def test_both_forms_give_the_same(form: str, these: Drawn) -> None:
    """All functions get the same: to draw takes longer than to call."""
    for name, call in CALLS.items():
        assert call(form_of(form), these) == call(reference, these), name


@pytest.mark.parametrize("count", [0, 1, 3, 4, LARGE, INT64_MAX])
def test_columns_of_another_count_than_there_are_entries(form: str, count: int) -> None:
    """Room is made for what `count` entries leave: the long value would go behind it."""
    data = bytes(build_set([NewRecord(b"v" * 200), NewRecord(b"w")], magic=0))
    for module in (form_of(form), reference):
        assert module.gather(data, 0, len(data), 2).value_data == b"v" * 200 + b"w"
        with pytest.raises(ValueError, match=r"is no good plain message|do not hold"):
            module.gather(data, 0, len(data), count)


@pytest.mark.parametrize("start", [-1, 28, INT64_MAX])
@pytest.mark.parametrize("end", [27, 0, -LARGE])
def test_bytes_behind_the_end_are_refused(form: str, start: int, end: int) -> None:
    data = bytes(build_set([NewRecord(b"v")], magic=0))
    assert len(data) == 27
    for module in (form_of(form), reference):
        for call in (module.walk, module.scan_offset, module.scan_timestamp):
            with pytest.raises(IndexError, match=f"no bytes {start} to {end} in a buffer of 27"):
                call(data, start, end, *((0,) if call is not module.walk else ()))


def test_what_wants_a_view_takes_nothing_else(form: str) -> None:
    module = form_of(form)
    for other in (b"bytes", bytearray(5), None, 5):
        with pytest.raises(TypeError, match="it must be a memoryview"):
            module.RecordCursor(other, 0, 5)


def test_times_that_are_too_far_from_each_other(form: str) -> None:
    for module in (form_of(form), reference):
        encoder = module.RecordEncoder()
        encoder.add(b"first", None, -1)
        with pytest.raises(ValueError, match=f"{INT64_MAX}: behind a first record without one"):
            encoder.add(b"second", None, INT64_MAX)
        encoder.add(b"second", None, INT64_MAX - 1)


@pytest.mark.soak
def test_a_batch_of_2_gib_is_refused(form: str) -> None:
    """Also where the room for it was made before."""
    encoder = form_of(form).RecordEncoder()
    content = bytes(1100 << 20)
    encoder.add(content, None, 0)
    with pytest.raises(ValueError, match="it must be below 2 GiB"):
        encoder.add(content, None, 0)
    assert encoder.count == 1
