"""What all clients together make the broker hold."""

from collections import deque
from collections.abc import Callable

from horolog.server.network.held_memory import FREE_BYTES, HeldMemory

LIMIT = 1000 * FREE_BYTES


class Loop:
    """Calls what is to be called soon, when it is told to."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()

    def __call__(self, call: Callable[[], None]) -> None:
        self._calls.append(call)

    def turn(self) -> None:
        for _ in range(len(self._calls)):
            self._calls.popleft()()

    def run(self) -> None:
        while self._calls:
            self.turn()


class SomeHolder:
    def __init__(self, held_since: float, held: int = 0, address: str = "10.0.0.1") -> None:
        self.held_since = held_since
        self.held = held
        self.address = address
        self.given_up_at: int | None = None
        self.memory: HeldMemory | None = None
        self.wants = 0
        self.works = 0

    def held_bytes(self) -> int:
        return self.held

    def give_up(self, total_bytes: int) -> None:
        self.given_up_at = total_bytes
        self.held = 0

    def begin(self, memory: HeldMemory, size_bytes: int) -> bool:
        """Work on a request, now or when there is room; whether that is in this turn of the loop or
        in the next ones."""
        self.memory, self.wants = memory, size_bytes
        self.room_came()
        if isinstance(memory._call_soon, Loop):
            memory._call_soon.run()
        return self.works == size_bytes

    def end(self) -> None:
        """The work is done, and answered."""
        assert self.memory is not None
        self.works = 0
        self.memory.note_work(self, 0)

    def room_came(self) -> None:
        assert self.memory is not None
        if self.memory.take_room(self, self.wants):
            self.works = self.wants
            self.memory.note_work(self, self.works)


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


HALF = LIMIT // 2


def workers(count: int, address: str = "10.0.0.1") -> list[SomeHolder]:
    return [SomeHolder(float(number), address=address) for number in range(count)]


def test_work_takes_half_of_the_limit_and_what_finds_no_room_waits() -> None:
    loop = Loop()
    memory = HeldMemory(LIMIT, loop)
    first, second, third = workers(3)
    assert first.begin(memory, HALF // 2)
    assert second.begin(memory, HALF // 2)
    assert not third.begin(memory, FREE_BYTES + 1)
    loop.run()
    assert not third.works
    assert memory.total_bytes == HALF
    second.end()
    assert not third.works
    loop.run()
    assert third.works == FREE_BYTES + 1
    assert memory.total_bytes == HALF // 2 + FREE_BYTES + 1


def test_nothing_passes_what_waits_for_room() -> None:
    loop = Loop()
    memory = HeldMemory(LIMIT, loop)
    first, second, large, small = workers(4)
    assert first.begin(memory, HALF // 2)
    assert second.begin(memory, HALF // 2 - FREE_BYTES)
    assert not large.begin(memory, HALF // 2)
    assert not small.begin(memory, FREE_BYTES + 1)
    first.end()
    loop.run()
    assert large.works
    assert not small.works
    second.end()
    loop.run()
    assert small.works


def test_addresses_take_turns_for_room() -> None:
    loop = Loop()
    memory = HeldMemory(LIMIT, loop)
    (busy,) = workers(1)
    greedy, (honest,) = workers(3), workers(1, "10.0.0.2")
    assert busy.begin(memory, HALF)
    assert [each.begin(memory, HALF) for each in greedy] == [False] * 3
    assert not honest.begin(memory, HALF)
    busy.end()
    loop.run()
    assert [each.works > 0 for each in (*greedy, honest)] == [True, False, False, False]
    greedy[0].end()
    loop.run()
    assert [each.works > 0 for each in (*greedy, honest)] == [False, False, False, True]


def test_one_request_is_worked_on_however_much_it_takes() -> None:
    loop = Loop()
    memory = HeldMemory(LIMIT, loop)
    first, second = workers(2)
    assert first.begin(memory, 5 * LIMIT)
    assert not second.begin(memory, 1)
    loop.run()
    first.end()
    loop.run()
    assert second.works


def test_work_closes_nobody_whose_client_left_up_to_half_of_the_limit() -> None:
    loop = Loop()
    memory = HeldMemory(LIMIT, loop)
    lazy = holders(memory, HALF - FREE_BYTES, FREE_BYTES)
    first, second = workers(2)
    assert first.begin(memory, HALF)
    assert not second.begin(memory, HALF)
    assert not any(each.given_up_at for each in lazy)


def test_who_left_more_than_half_of_the_limit_is_closed_for_work_that_waits() -> None:
    loop = Loop()
    memory = HeldMemory(LIMIT, loop)
    lazy, other = holders(memory, HALF // 2, HALF)
    first, second = workers(2)
    assert first.begin(memory, HALF // 4)
    assert not second.begin(memory, HALF // 2), "what was given up is not free yet"
    assert lazy.given_up_at
    assert not other.given_up_at
    memory.forget(lazy)
    loop.run()
    assert second.works


def test_who_is_gone_does_not_wait_for_room() -> None:
    loop = Loop()
    memory = HeldMemory(LIMIT, loop)
    first, gone, last = workers(3)
    assert first.begin(memory, HALF)
    assert not gone.begin(memory, HALF)
    assert not last.begin(memory, HALF)
    memory.forget(gone)
    memory.forget(first)
    loop.run()
    assert not gone.works
    assert last.works


def test_a_request_that_takes_more_than_was_thought_waits_once_more() -> None:
    loop = Loop()
    memory = HeldMemory(LIMIT, loop)
    first, second, third = workers(3)
    assert first.begin(memory, HALF // 2)
    assert second.begin(memory, HALF // 2)
    assert not third.begin(memory, HALF // 2)
    third.wants = HALF
    second.end()
    loop.run()
    assert not third.works
    first.end()
    loop.run()
    assert third.works == HALF


def test_one_large_request_is_begun_in_a_turn_of_the_loop() -> None:
    """Each may take a while to read: those of a hundred clients are not read without a break."""
    loop = Loop()
    memory = HeldMemory(LIMIT, loop)
    made = workers(3)
    for each in made:
        each.memory, each.wants = memory, FREE_BYTES + 1
        each.room_came()
    (small,) = workers(1)
    assert [each.works > 0 for each in made] == [True, False, False]
    loop.turn()
    assert [each.works > 0 for each in made] == [True, True, False]
    loop.turn()
    assert [each.works > 0 for each in made] == [True, True, True]
    loop.run()
    assert memory.take_room(small, FREE_BYTES)
