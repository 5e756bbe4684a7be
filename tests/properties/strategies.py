"""What random tests of storage draw from: times, message sets, settings."""

from collections.abc import Callable

import hypothesis
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.sets import NewRecord
from hypothesis import strategies as st

from .model import Part, SentSet

NOW_MS = 1_479_144_272_509
"""Where the clock of `LogFolder` starts."""

_TEN_YEARS_MS = 315_360_000_000

near_times = st.integers(NOW_MS - 8, NOW_MS + 8)
far_times = st.one_of(
    st.sampled_from([0, 1, 2**62, 2**63 - 1]),
    st.integers(NOW_MS - _TEN_YEARS_MS, NOW_MS + _TEN_YEARS_MS),
)
times = st.one_of(near_times, near_times, st.just(-1), far_times)
"""Often equal to each other and out of order, sometimes none, sometimes far away."""

contents = st.one_of(st.none(), st.just(b""), st.binary(max_size=20), st.just(b"v" * 120))

codecs = st.sampled_from([Codec.NONE, Codec.NONE, *Codec])


@st.composite
def parts(
    draw: st.DrawFn,
    magics: st.SearchStrategy[int] = st.sampled_from([0, 1, 1, 1]),
    codecs: st.SearchStrategy[Codec] = codecs,
    max_records: int = 5,
) -> Part:
    magic = draw(magics)
    size = draw(st.integers(1, max_records))
    records = tuple(
        NewRecord(draw(contents), draw(contents), draw(times) if magic else -1) for _ in range(size)
    )
    return Part(magic, draw(codecs), records)


sent_sets = st.one_of(
    st.builds(SentSet, st.tuples(parts())),
    st.builds(SentSet, st.tuples(parts())),
    st.builds(SentSet, st.lists(parts(max_records=3), min_size=1, max_size=3).map(tuple)),
)
"""Mostly all plain or one wrapper, as clients send them; sometimes a mixture."""

timed_sets = st.builds(SentSet, st.tuples(parts(magics=st.just(1))))
"""Of format v1 only."""


def _texts(*values: int) -> st.SearchStrategy[str]:
    return st.sampled_from([str(value) for value in values])


small_segments = st.fixed_dictionaries(
    {
        "segment.bytes": _texts(400, 700, 1500, 10_000),
        "index.interval.bytes": _texts(0, 1, 40, 100, 300),
        "segment.index.bytes": st.integers(24, 100).map(str),
        "max.message.bytes": st.just("1000000"),
    },
    optional={"segment.ms": _texts(1, 5, 10_000)},
)
"""Settings under which a few messages fill segments and indexes."""

stamping = st.fixed_dictionaries(
    {},
    optional={
        "message.timestamp.type": st.sampled_from(["CreateTime", "LogAppendTime"]),
        "compression.type": st.sampled_from(
            ["producer", "producer", "uncompressed", "gzip", "snappy", "lz4"]
        ),
    },
)

topic_settings_texts = st.builds(lambda one, other: one | other, small_segments, stamping)


def examples(count: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Try a property `count` times; as many times more as the profile asks of all tests."""
    times_more = max(hypothesis.settings.default.max_examples // 100, 1)
    return hypothesis.settings(max_examples=count * times_more)
