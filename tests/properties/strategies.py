"""What random tests of storage draw from: times, message sets, settings."""

from hypothesis import strategies as st

from horolog.protocol.records.layout import MESSAGE_CODECS, Codec
from horolog.protocol.records.messages.sets import NewRecord

from .model import Part, Quirk, SentSet, StoredEntries

BATCH = 2
"""The magic of record batches."""

NOW_MS = 1_479_144_272_509
"""Where the clock of `LogFolder` starts."""

_TEN_YEARS_MS = 315_360_000_000

near_times = st.integers(NOW_MS - 8, NOW_MS + 8)
far_times = st.one_of(
    st.sampled_from([0, 1, 2**62, 2**63 - 2]),
    st.integers(NOW_MS - _TEN_YEARS_MS, NOW_MS + _TEN_YEARS_MS),
)
times = st.one_of(near_times, near_times, near_times, near_times, st.just(-1), far_times)
"""Often equal to each other and out of order, sometimes none, sometimes far away."""

headers = st.one_of(
    st.just(()),
    st.just(()),
    st.lists(
        st.tuples(
            st.sampled_from(["", "h", "h", "ü"]), st.one_of(st.none(), st.binary(max_size=5))
        ),
        max_size=3,
    ).map(tuple),
)
contents = st.one_of(st.none(), st.just(b""), st.binary(max_size=20), st.just(b"v" * 120))


@st.composite
def parts(
    draw: st.DrawFn,
    magic: int | None = None,
    codec: Codec | None = None,
    max_records: int = 5,
    times: st.SearchStrategy[int] = times,
) -> Part:
    """Messages of one format, plain, in one wrapper or in one batch."""
    if magic is None:
        magic = draw(st.sampled_from([0, 1, 1, 1, 2, 2]))
    if codec is None:
        codecs = list(Codec) if magic == BATCH else MESSAGE_CODECS
        codec = draw(st.sampled_from([Codec.NONE, Codec.NONE, *codecs]))
    size = draw(st.integers(1, max_records))
    records = tuple(
        NewRecord(
            draw(contents),
            draw(contents),
            draw(times) if magic else -1,
            draw(headers) if magic == BATCH else (),
        )
        for _ in range(size)
    )
    wrapper = codec and magic != BATCH
    quirk = draw(st.sampled_from([Quirk.NONE, Quirk.NONE, *Quirk])) if wrapper else Quirk.NONE
    return Part(magic, codec, records, quirk)


sent_sets = st.one_of(
    st.builds(SentSet, st.tuples(parts())),
    st.builds(SentSet, st.tuples(parts())),
    st.builds(
        SentSet,
        st.lists(
            st.sampled_from([0, 1]).flatmap(lambda magic: parts(magic, max_records=3)),
            min_size=1,
            max_size=3,
        ).map(tuple),
    ),
    st.builds(SentSet, st.lists(parts(BATCH, max_records=3), min_size=1, max_size=3).map(tuple)),
)
"""Mostly all plain, one wrapper or one batch, as clients send them; sometimes a mixture, but never
of batches and older messages, which is refused."""


far_holes = st.sampled_from([*[0] * 9, 1, 2, 5, 2**31 - 20, 2**31])
"""Offsets missing at the front: none, a few, or more than one segment's indexes can span."""


@st.composite
def stored_entries(
    draw: st.DrawFn, first_holes: st.SearchStrategy[int] = far_holes
) -> StoredEntries:
    """What a log got from another one."""
    part = draw(parts())
    may_have = part.magic == 1 or (part.magic == 0 and not part.codec)
    inner = st.integers(0, 2) if may_have else st.just(0)
    holes = (draw(first_holes), *(draw(inner) for _ in part.records[1:]))
    return StoredEntries(part.magic, part.codec, part.records, holes, draw(st.booleans()))


set_lists = st.one_of(
    st.lists(sent_sets, min_size=1, max_size=6),
    st.lists(sent_sets, min_size=8, max_size=30),
    st.lists(sent_sets, min_size=8, max_size=30),
)
"""Mostly enough to fill some segments."""

recent_sets = st.builds(SentSet, st.tuples(parts(times=near_times)))
"""With times about that of the clock."""


def _texts(*values: int) -> st.SearchStrategy[str]:
    return st.sampled_from([str(value) for value in values])


small_segments = st.fixed_dictionaries(
    {
        "segment.bytes": _texts(200, 400, 400, 700, 1500, 10_000),
        "index.interval.bytes": _texts(0, 1, 40, 100, 300),
        "segment.index.bytes": st.integers(24, 100).map(str),
        "segment.ms": _texts(1, 5, 10_000, 604_800_000, 604_800_000),
    }
)
"""Settings under which a few messages fill segments and indexes."""

stamping = st.fixed_dictionaries(
    {
        "message.timestamp.type": st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
        "compression.type": st.sampled_from(
            ["producer"] * 4 + ["uncompressed", "gzip", "snappy", "lz4", "zstd"]
        ),
        "message.format.version": st.sampled_from(["producer"] * 5 + ["0.9.0", "0.10.0", "2.1"]),
    }
)

topic_settings_texts = st.builds(lambda one, other: one | other, small_segments, stamping)
