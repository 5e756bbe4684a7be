"""Random schedules of a cluster, each from one seed, and wrong rules that they must notice."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from horolog.testing.simulation.options import ScheduleOptions
from horolog.testing.simulation.schedule import Simulation
from horolog.testing.simulation.violation import Violation

from .canaries import CANARIES, WithoutLease

Sample = Callable[[int], range]

SCHEDULES = 8_000
"""Of these and the following each run takes a sample."""

PARTS = 4
"""Tests that the schedules are spread over: each of them ends in time on a slow machine."""

SETS_BACK = 1_000
"""Schedules in which etcd may go back to an older state."""

DAMAGES = 700
"""Schedules in which stored bytes go bad, and wall clocks jump."""

WITHOUT_LEASE = 1_000
LONG = 300

LONG_STEPS = 1_000
"""Steps of a schedule that is to see more than one fault upon another."""

PAGE = Path(__file__).resolve().parents[2] / "docs" / "replication" / "model.md"

REGRESS = (
    637,
    651,
    685,
    871,
    1608,
    2820,
    3631,
    4887,
    16984,
    103017,
    106634,
    1040445,
    2003917,
    3059301,
    5000031823,
    5000046752,
    760909487003,
)
"""Seeds of schedules that broke something once; `docs/replication/model.md` says what it was."""

ELECTED_AT_THE_RESTORE = (831000002446, 831000007543)
"""Schedules in which a broker is elected before another, which knows its epoch, can record that
etcd went back."""

WITH_DAMAGE = (88200671080284, 21931070772, 21931080924)
"""Schedules with damage: a broker stands for election, finds damage, and stands again; a follower
gets the first message of an epoch damaged; a leader answers after an unclean election."""


def run(seeds: Iterable[int], **options: object) -> Counter[str]:
    counts: Counter[str] = Counter()
    drawn: dict[str, object] = {
        "own_min_insync": True,
        "own_durability": True,
        "loses_histories": True,
    } | options
    for seed in seeds:
        try:
            counts.update(Simulation(seed, ScheduleOptions(**drawn)).run().counts)  # type: ignore[arg-type]
        except Violation as violation:
            raise AssertionError(f"seed {seed} {options}: {violation}") from violation
    return counts


@pytest.fixture
def base(request: pytest.FixtureRequest) -> int:
    """The first seed of a soak: another one in each. A failure names its seed."""
    seed: str = request.config.option.hypothesis_seed
    return random.Random(f"simulation {seed}").randrange(2**40)


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_promised_holds(sample: Sample, part: int) -> None:
    seeds = sample(SCHEDULES)[part::PARTS]
    counts = run(seeds)
    # What makes a schedule worth anything did happen.
    for what in (
        "elections",
        "commits",
        "acknowledged",
        "cuts",
        "power cuts",
        "swaps",
        "reads",
        "answers",
        "lost histories",
    ):
        assert counts[what] > len(seeds) / 10, counts


def test_schedules_that_were_worth_something() -> None:
    run(REGRESS, own_min_insync=False, own_durability=False, loses_histories=False)
    run(ELECTED_AT_THE_RESTORE, sets_back=True)
    run(WITH_DAMAGE, damages=True, clocks_jump=True)


def test_a_seed_says_everything() -> None:
    assert [run([seed]) for seed in range(50)] == [run([seed]) for seed in range(50)]


def test_long_schedules(sample: Sample) -> None:
    run(sample(LONG), steps=LONG_STEPS)


def test_an_etcd_that_goes_back_is_not_believed(sample: Sample) -> None:
    seeds = sample(SETS_BACK)
    counts = run(seeds, sets_back=True)
    for what in ("set back", "cures", "copies", "orderly stops", "removals"):
        assert counts[what], counts
    assert counts["set back"] > len(seeds) / 10, counts


def test_damage_and_clocks_that_jump_lose_nothing(sample: Sample) -> None:
    seeds = sample(DAMAGES)
    counts = run(seeds, damages=True, clocks_jump=True)
    for what in ("damages", "jumps"):
        assert counts[what] > len(seeds) / 5, counts
    for what in ("repairs", "refused times", "expired"):
        assert counts[what], counts


def test_without_the_lease_only_reads_may_be_old(sample: Sample) -> None:
    run(sample(WITHOUT_LEASE), node_class=WithoutLease, lease=False)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(40))
def test_what_is_promised_holds_for_long(base: int, part: int) -> None:
    first = base + SCHEDULES + part * 50_000
    run(range(first, first + 50_000))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_an_etcd_that_goes_back_is_not_believed_for_long(base: int, part: int) -> None:
    first = base + SETS_BACK + part * 20_000
    run(range(first, first + 20_000), sets_back=True)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_damage_and_clocks_that_jump_lose_nothing_for_long(base: int, part: int) -> None:
    first = base + DAMAGES + part * 20_000
    run(range(first, first + 20_000), damages=True, clocks_jump=True)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_long_schedules_for_long(base: int, part: int) -> None:
    first = base + part * 10_000
    run(range(first, first + 10_000), steps=LONG_STEPS)


@pytest.mark.parametrize("name", CANARIES)
def test_a_wrong_rule_is_noticed(name: str) -> None:
    """By the schedule that the page names; a soak looks for the first one that does."""
    with pytest.raises(Violation):
        Simulation(_noticed()[name], CANARIES[name]()).run()


@pytest.mark.parametrize("name", CANARIES)
def test_the_right_rule_holds_where_a_wrong_one_is_noticed(name: str) -> None:
    """A rule that goes wrong again is noticed by each run, whatever its sample is."""
    options, right = CANARIES[name](), ScheduleOptions()
    options.node_class, options.log_class = right.node_class, right.log_class
    options.one_nonce = False
    Simulation(_noticed()[name], options).run()


@pytest.mark.soak
@pytest.mark.parametrize("name", CANARIES)
def test_the_first_schedule_that_notices_a_wrong_rule(name: str) -> None:
    for seed in range(_noticed()[name]):
        Simulation(seed, CANARIES[name]()).run()


def _noticed() -> dict[str, int]:
    """The first schedules that notice each wrong rule, as the page has them."""
    _, table = PAGE.read_text().split("| Wrong rule | First noticed by seed |\n|---|---|\n")
    rows, _, _ = table.partition("\n\n")
    return {
        name: int(seed) for name, seed in (row.strip("| ").split(" | ") for row in rows.split("\n"))
    }
