"""What all clients together make the broker hold."""

from collections.abc import Callable

from horolog.server.network.held_memory import FREE_BYTES, HeldMemory

LIMIT = 1000 * FREE_BYTES


class SomeHolder:
    def __init__(self, held_since: float, held: int = 0) -> None:
        self.held_since = held_since
        self.held = held
        self.given_up_at: int | None = None

    def held_bytes(self) -> int:
        return self.held

    def give_up(self, total_bytes: int) -> None:
        self.given_up_at = total_bytes
        self.held = 0


def memory_of(called: list[Callable[[], None]]) -> HeldMemory:
    return HeldMemory(LIMIT, called.append)


def holders(memory: HeldMemory, *held: int) -> list[SomeHolder]:
    """Holders that have been so for the longer, the earlier they come."""
    made = [SomeHolder(float(number), each) for number, each in enumerate(held)]
    for holder in made:
        memory.note(holder)
    return made


def test_up_to_the_limit_nobody_is_closed() -> None:
    memory = memory_of([])
    made = holders(memory, LIMIT // 2, LIMIT // 2)
    assert memory.total_bytes == LIMIT
    assert not any(holder.given_up_at for holder in made)


def test_above_it_the_laziest_are_closed_until_it_fits() -> None:
    memory = memory_of([])
    third = LIMIT // 3
    first, second, third_one, last = holders(memory, third, third, third, 2 * third)
    assert first.given_up_at == 5 * third
    assert second.given_up_at == 4 * third
    assert third_one.given_up_at is last.given_up_at is None
    assert memory.total_bytes == 3 * third


def test_what_was_read_meanwhile_does_not_count() -> None:
    memory = memory_of([])
    reader, other = holders(memory, LIMIT, 0)
    reader.held = 0
    other.held = LIMIT
    memory.note(other)
    assert reader.given_up_at is other.given_up_at is None
    assert memory.total_bytes == LIMIT


def test_the_last_one_may_be_above_the_limit() -> None:
    memory = memory_of([])
    first, second = holders(memory, FREE_BYTES + 1, 5 * LIMIT)
    assert first.given_up_at is not None
    assert second.given_up_at is None
    assert memory.total_bytes == 5 * LIMIT


def test_a_little_of_each_does_not_count() -> None:
    memory = memory_of([])
    made = holders(memory, *[FREE_BYTES] * 3000)
    assert memory.total_bytes == 0
    assert not any(holder.given_up_at for holder in made)


def test_who_is_gone_holds_nothing() -> None:
    memory = memory_of([])
    first, _ = holders(memory, LIMIT, 0)
    memory.forget(first)
    memory.forget(first)
    assert memory.total_bytes == 0


def test_more_has_to_wait_until_what_was_given_up_is_free() -> None:
    called: list[Callable[[], None]] = []
    memory = memory_of(called)
    first, _ = holders(memory, LIMIT, LIMIT)
    assert first.given_up_at is not None

    def work() -> None:
        raise NotImplementedError

    assert not memory.ask_for_room(work)
    assert not memory.ask_for_room(work)
    assert called == []
    memory.forget(first)
    assert called == [work]
    assert memory.ask_for_room(work)


def test_nobody_waits_for_one_that_is_above_the_limit_alone() -> None:
    memory = memory_of([])
    holders(memory, 5 * LIMIT)
    assert memory.ask_for_room(lambda: None)
