"""Columns are cut into sets as a plain loop over their rows would cut them."""

from hypothesis import given
from hypothesis import strategies as st

from horolog.client.produce.batching import RECORD_OVERHEAD, MessageColumns, pieces
from horolog.client.produce.encoding import Headers, headers_bytes

ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=60),
        st.none() | st.binary(max_size=20),
        st.lists(st.tuples(st.text("hé", max_size=5), st.none() | st.binary(max_size=40))),
    ),
    max_size=30,
)


def cut(rows: list[tuple[bytes | None, bytes | None, Headers]], limit_bytes: int) -> list[int]:
    """Where each run ends: a row more would be too much, or it is one row."""
    ends: list[int] = []
    start = size_bytes = 0
    for number, (value, key, headers) in enumerate(rows):
        row_bytes = RECORD_OVERHEAD + len(value or b"") + len(key or b"") + headers_bytes(headers)
        if number > start and size_bytes + row_bytes > limit_bytes:
            ends.append(number)
            start, size_bytes = number, 0
        size_bytes += row_bytes
    return [*ends, len(rows)] if rows else ends


@given(ROWS, st.booleans(), st.booleans(), st.integers(0, 400))
def test_as_a_plain_loop(
    rows: list[tuple[bytes | None, bytes | None, Headers]],
    with_keys: bool,
    with_headers: bool,
    limit_bytes: int,
) -> None:
    rows = [
        (value, key if with_keys else None, headers if with_headers else ())
        for value, key, headers in rows
    ]
    columns = MessageColumns(
        [row[0] for row in rows],
        [row[1] for row in rows] if with_keys else None,
        list(range(len(rows))),
        [row[2] for row in rows] if with_headers else None,
    )
    found = list(pieces(columns, limit_bytes))
    ends, start = [], 0
    for piece, size_bytes in found:
        end = start + len(piece)
        those = rows[start:end]
        assert list(piece.values) == [row[0] for row in those]
        assert piece.keys is None or list(piece.keys) == [row[1] for row in those]
        assert piece.headers is None or list(piece.headers) == [row[2] for row in those]
        assert list(piece.times_ms) == list(range(start, end))
        content = sum(len(row[0] or b"") + len(row[1] or b"") for row in those)
        around = sum(RECORD_OVERHEAD + headers_bytes(row[2]) for row in those)
        assert size_bytes == content + around
        ends.append(end)
        start = end
    assert ends == cut(rows, limit_bytes)
