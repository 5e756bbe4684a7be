"""Some hundred TLS handshakes that stop half-way, at a broker in a process of its own."""

from horolog.bench.brokers import MIB
from horolog.bench.guard.half_open import half_open

COUNT = 400


def test_memory_is_bounded_and_others_are_answered() -> None:
    default, all_held = half_open(COUNT)
    assert (default.held, default.refused) == (250, COUNT - 250)
    assert (all_held.held, all_held.refused) == (COUNT, 0)
    for each in (default, all_held):
        assert each.grown_bytes < 64 * MIB
