"""Which quota is a client's, beside a plain table of ranks; names and values; the file."""

import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.errors import CodedError, InvalidRequest
from horolog.server.quotas import rules
from horolog.server.quotas.rules import (
    DEFAULT,
    Bound,
    Entity,
    Quota,
    QuotaChange,
    Quotas,
    QuotaTable,
    problem_of_name,
    problem_of_value,
)
from horolog.testing.access import StoredAccess
from horolog.tests.properties.examples import examples

PRODUCE = Quota.PRODUCER_BYTE_RATE

RANKS = [
    ("this", "this"),
    ("this", "default"),
    ("this", "none"),
    ("default", "this"),
    ("default", "default"),
    ("default", "none"),
    ("none", "this"),
    ("none", "default"),
]
"""Kafka's order: what an entity says of the user and of the client id."""

NAMES = st.sampled_from([None, DEFAULT, "a", "b"])
TABLES = st.dictionaries(
    st.builds(Entity, NAMES, NAMES).filter(lambda entity: entity != Entity()),
    st.dictionaries(st.sampled_from(list(Quota)), st.floats(1, 1e9), max_size=4),
    max_size=10,
)


def says(name: str | None, asked: str) -> str:
    return {None: "none", DEFAULT: "default", asked: "this"}.get(name, "another")


@examples(600)
@given(TABLES, st.sampled_from(["a", "b", "c"]), st.sampled_from(["a", "b", "c"]))
def test_the_most_special_quota_holds(
    table: dict[Entity, dict[Quota, float]], user: str, client_id: str
) -> None:
    quotas = QuotaTable(table)
    for quota in Quota:
        ranked = []
        for entity, values in table.items():
            said = says(entity.user, user), says(entity.client_id, client_id)
            if quota in values and said in RANKS:
                ranked.append((RANKS.index(said), said, values[quota]))
        found = quotas.bound(quota, user, client_id)
        if not ranked:
            assert found is None
            continue
        _, (of_user, of_client), limit = min(ranked)
        taken_by = Entity(
            None if of_user == "none" else user, None if of_client == "none" else client_id
        )
        assert found == Bound(limit, taken_by)


def test_a_client_without_a_name_has_the_quotas_of_defaults_only() -> None:
    quotas = QuotaTable({Entity(None, DEFAULT): {PRODUCE: 5.0}, Entity("a"): {PRODUCE: 7.0}})
    assert quotas.bound(PRODUCE, "b", "") == Bound(5.0, Entity(None, ""))
    assert quotas.bound(PRODUCE, "a", "") == Bound(7.0, Entity("a"))


@pytest.mark.parametrize(
    "value", [0.0, -0.0, -1.0, float("nan"), float("inf"), float("-inf"), 2.0**63, 1e300]
)
@pytest.mark.parametrize("quota", list(Quota))
def test_values_that_no_quota_has(quota: Quota, value: float) -> None:
    problem = problem_of_value(quota, value)
    assert problem is not None
    assert quota.value in problem
    assert "above 0 and below 2^63" in problem


def test_byte_rates_are_whole_and_others_need_not_be() -> None:
    assert "whole" in str(problem_of_value(PRODUCE, 1.5))
    assert problem_of_value(Quota.REQUEST_PERCENTAGE, 0.5) is None
    assert problem_of_value(PRODUCE, 2.0**62) is None


@pytest.mark.parametrize(
    ("name", "fine"),
    [
        *(("a", True), ("é" * 127, True), ("x" * 255, True), ("", False), ("x" * 256, False)),
        *(("é" * 128, False), ("a\nb", False), ("\x1b[2J", False)),
    ],
)
def test_names(name: str, fine: bool) -> None:
    assert (problem_of_name("user", name) is None) == fine


class StoredQuotas(Quotas):
    """Quotas in a data directory."""

    def __init__(self, path: Path) -> None:
        self.stored = StoredAccess(path)
        super().__init__(self.stored.state.quotas)

    def change(
        self, changes: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> list[CodedError | bool]:
        outcome = self.stored.change(lambda: self.planned(changes, validate_only=validate_only))
        self.use(self.stored.state.quotas)
        return outcome


def quotas(path: Path) -> StoredQuotas:
    return StoredQuotas(path)


CHANGES = st.builds(
    QuotaChange,
    st.builds(Entity, NAMES, NAMES).filter(lambda entity: entity != Entity()),
    st.dictionaries(st.sampled_from(list(Quota)), st.none() | st.integers(1, 9).map(float)),
)


@examples(150)
@given(st.lists(st.lists(CHANGES, max_size=4), max_size=5))
def test_what_is_changed_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[QuotaChange]]
) -> None:
    path = tmp_path_factory.mktemp("data")
    kept = quotas(path)
    oracle: dict[tuple[Entity, Quota], float] = {}
    for changes in rounds:
        before = {entity: dict(values) for entity, values in kept.table.quotas.items()}
        dry = kept.change(changes, validate_only=True)
        assert kept.change(changes) == dry
        assert all(type(outcome) is bool for outcome in dry)
        assert any(dry) or kept.table.quotas == before
        for change in changes:
            for quota, value in change.values.items():
                oracle.pop((change.entity, quota), None)
                if value is not None:
                    oracle[change.entity, quota] = value
        for seen in (kept, quotas(path)):
            told = {
                (entity, quota): value
                for entity, values in seen.table.quotas.items()
                for quota, value in values.items()
            }
            assert told == oracle


def test_what_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = quotas(tmp_path)
    log = tmp_path / "metadata-log" / "__metadata-0" / f"{0:020d}.log"
    assert kept.change([QuotaChange(Entity("a"), {PRODUCE: None})]) == [False]
    assert log.read_bytes() == b""
    assert kept.change([QuotaChange(Entity("a", DEFAULT), {PRODUCE: 9.0})]) == [True]
    before = log.read_bytes()
    assert kept.change([QuotaChange(Entity("a", DEFAULT), {PRODUCE: 9.0})]) == [False]
    assert log.read_bytes() == before
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    monkeypatch.setattr(rules, "MAX_QUOTA_ENTITIES", 1)
    first, second = kept.change(
        [
            QuotaChange(Entity("a", DEFAULT), {PRODUCE: 8.0}),
            QuotaChange(Entity("b"), {PRODUCE: 1.0}),
        ]
    )
    assert first is True
    assert isinstance(second, InvalidRequest)
    assert quotas(tmp_path).table.quotas == {Entity("a", DEFAULT): {PRODUCE: 8.0}}
