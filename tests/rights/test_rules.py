"""The rules beside a plain list of them, and the file that they are in."""

import stat
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.security.acl_terms import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from horolog.protocol.api.security.acls import AclFilter
from horolog.protocol.errors import InvalidRequest
from horolog.server.security.acl_store import Acls, Authorizer, Filter, Filters, problem_of
from horolog.server.security.acls import Acl, AclTable, Reason, Resource, covers
from horolog.testing.access import StoredAccess
from horolog.tests.properties.examples import examples

OPERATIONS = [each for each in Operation if each > Operation.ALL]
NAMES = ["a", "ab", "abc", "b", "*"]
HOSTS = ["127.0.0.1", "10.0.0.1", "::1"]

RULES = st.builds(
    Acl,
    resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    resource_name=st.sampled_from(NAMES),
    principal=st.sampled_from(["User:x", "User:y", "User:*"]),
    host=st.sampled_from(["*", "127.0.0.1", "0:0:0:0:0:0:0:1"]),
    operation=st.sampled_from([Operation.ALL, *OPERATIONS]),
    permission=st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)
QUESTIONS = st.tuples(
    st.sampled_from(["User:x", "User:y", "User:z"]),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from([*NAMES, "abcd", "z"]),
)


def applies(acl: Acl, principal: str, host: str, kind: ResourceType, name: str) -> bool:
    """The rule is about this principal, host and resource."""
    if acl.resource_type is not kind:
        return False
    if acl.pattern_type is PatternType.PREFIXED:
        named = name.startswith(acl.resource_name)
    else:
        named = acl.resource_name in (name, "*")
    here = acl.host in ("*", host) or (acl.host == "0:0:0:0:0:0:0:1" and host == "::1")
    return named and here and acl.principal in (principal, "User:*")


def may(acls: list[Acl], asked: tuple[str, str, Operation, ResourceType, str]) -> bool:
    """Kafka's semantics, rule by rule."""
    principal, host, operation, kind, name = asked
    about = [acl for acl in acls if applies(acl, principal, host, kind, name)]
    denied = {acl.operation for acl in about if acl.permission is Permission.DENY}
    allowed = {acl.operation for acl in about if acl.permission is Permission.ALLOW}
    if denied & {operation, Operation.ALL}:
        return False
    enough = {operation, Operation.ALL}
    if operation is Operation.DESCRIBE:
        enough |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation is Operation.DESCRIBE_CONFIGS:
        enough.add(Operation.ALTER_CONFIGS)
    return bool(allowed & enough)


@examples(600)
@given(acls=st.lists(RULES, max_size=8), questions=st.lists(QUESTIONS, min_size=1, max_size=8))
def test_decisions_beside_a_plain_list(
    acls: list[Acl], questions: list[tuple[str, str, Operation, ResourceType, str]]
) -> None:
    table = AclTable(acls, ["User:z"])
    for asked in questions:
        principal, host, operation, kind, name = asked
        found = table.decide(principal, host, operation, Resource(kind, name))
        assert found.allowed == (principal == "User:z" or may(acls, asked))
        if found.rule is None:
            expected = Reason.SUPER_USER if principal == "User:z" else Reason.NO_RULE
            assert found.reason is expected
        else:
            assert found.rule in acls
            assert applies(found.rule, principal, host, kind, name)
            assert (found.rule.permission is Permission.ALLOW) == found.allowed
        # As a client writes an IPv4 address on a socket of both kinds.
        mapped = f"::ffff:{host}" if "." in host else host
        again = table.decide(principal, mapped, operation, Resource(kind, name))
        assert again.allowed == found.allowed


@pytest.mark.parametrize("operation", [Operation.ALL, Operation.READ])
@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (PatternType.LITERAL, "ab"),
        (PatternType.LITERAL, "*"),
        (PatternType.PREFIXED, "a"),
        (PatternType.PREFIXED, "ab"),
    ],
)
@pytest.mark.parametrize("who", [("User:x", "127.0.0.1"), ("User:*", "*")], ids=" ".join)
def test_a_rule_that_denies_wins(
    who: tuple[str, str], pattern: PatternType, name: str, operation: Operation
) -> None:
    """However many allow the same, in whatever order and however exactly."""
    topic = ResourceType.TOPIC
    every = Acl(topic, PatternType.LITERAL, "*", "User:*", "*", Operation.ALL, Permission.ALLOW)
    exact = Acl(
        topic, PatternType.LITERAL, "ab", "User:x", "127.0.0.1", Operation.READ, Permission.ALLOW
    )
    denying = Acl(topic, pattern, name, *who, operation, Permission.DENY)
    for rules in permutations((every, exact, denying)):
        table = AclTable(rules)
        found = table.decide("User:x", "127.0.0.1", Operation.READ, Resource(topic, "ab"))
        assert (found.allowed, found.reason, found.rule) == (False, Reason.DENIED_BY_RULE, denying)


@examples(600)
@given(acls=st.lists(RULES, max_size=8), question=QUESTIONS)
def test_any_resource_of_a_type(
    acls: list[Acl], question: tuple[str, str, Operation, ResourceType, str]
) -> None:
    """It may do it to some name: one of those that rules are about, or one that only * and prefixes
    mean. Kafka looks at rules one by one, so where some deny it may allow more, never less."""
    principal, host, operation, kind, _ = question
    direct = [acl for acl in acls if acl.operation in (operation, Operation.ALL)]
    names = {acl.resource_name for acl in direct}
    tried = {*names, *(f"{name}\0" for name in names), "\0"} - {"*"}
    to_some = any(may(direct, (principal, host, operation, kind, name)) for name in tried)
    implied = may(acls, (principal, host, operation, kind, "hardcode"))
    found = AclTable(acls).decide_any(principal, host, operation, kind)
    if not any(acl.permission is Permission.DENY for acl in direct):
        assert found == (to_some or implied)
    elif to_some or implied:
        assert found


@examples(600)
@given(acls=st.lists(RULES, max_size=8), question=QUESTIONS)
def test_every_resource_of_a_type(
    acls: list[Acl], question: tuple[str, str, Operation, ResourceType, str]
) -> None:
    """It may do it to all names: those that rules are about, and those that * and prefixes mean."""
    principal, host, operation, kind, _ = question
    names = {acl.resource_name for acl in acls}
    tried = {*names, *(f"{name}\0" for name in names), "\0"} - {"*"}
    to_all = all(may(acls, (principal, host, operation, kind, name)) for name in tried)
    assert AclTable(acls).decide_all(principal, host, operation, kind) == to_all
    assert AclTable(acls, [principal]).decide_all(principal, host, operation, kind)


def test_a_decision_looks_at_no_rule_of_another_principal_host_or_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[Acl] = []

    def counted(acl: Acl, operation: Operation) -> bool:
        looked_at.append(acl)
        return covers(acl, operation)

    monkeypatch.setattr("horolog.server.security.acls.covers", counted)
    others = [rule("*", principal=f"User:u{number}") for number in range(1000)]
    elsewhere = [rule("*", host=f"10.0.{number}.1") for number in range(250)]
    unlike = [rule(f"other-{number}") for number in range(1000)]
    table = AclTable([*others, *elsewhere, *unlike, rule(), rule("*", principal="User:*")])
    topic = Resource(ResourceType.TOPIC, "clicks")
    assert table.decide("User:alice", "127.0.0.1", Operation.READ, topic).rule == rule()
    assert looked_at == [rule(), rule("*", principal="User:*")]
    looked_at.clear()
    table.decide("User:bob", "127.0.0.1", Operation.WRITE, topic)
    assert looked_at == [rule("*", principal="User:*")]


def rule(name: str = "clicks", **changed: Any) -> Acl:
    values: dict[str, Any] = {
        "resource_type": ResourceType.TOPIC,
        "pattern_type": PatternType.LITERAL,
        "resource_name": name,
        "principal": "User:alice",
        "host": "*",
        "operation": Operation.READ,
        "permission": Permission.ALLOW,
    }
    return Acl(**{**values, **changed})


class StoredAcls:
    """Rules in a data directory, and what is made of them."""

    def __init__(self, path: Path) -> None:
        self.stored = StoredAccess(path)
        self.acls = Acls(self.stored.state.rules)

    def add(self, rules: Sequence[Acl]) -> set[Acl]:
        new = self.stored.change(lambda: self.acls.plan_adding(rules))
        self.acls.use(self.stored.state.rules)
        return new

    def remove(self, doomed: Callable[[Acl], bool]) -> list[Acl]:
        gone = self.stored.change(lambda: self.acls.plan_removing(doomed))
        self.acls.use(self.stored.state.rules)
        return gone


def acls(path: Path) -> StoredAcls:
    return StoredAcls(path)


@examples(150)
@given(steps=st.lists(st.tuples(st.booleans(), st.lists(RULES, max_size=4)), max_size=6))
def test_what_is_stored_is_what_holds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, list[Acl]]]
) -> None:
    path = tmp_path_factory.mktemp("acls")
    store = acls(path)
    expected: dict[Acl, None] = {}
    for adds, changed in steps:
        if adds:
            store.add(changed)
            expected |= dict.fromkeys(changed)
        else:
            gone = store.remove(lambda acl, changed=changed: acl in changed)  # type: ignore[misc]
            assert gone == [acl for acl in expected if acl in changed]
            expected = {acl: None for acl in expected if acl not in changed}
        assert list(store.acls.table.acls) == list(expected)
        assert list(acls(path).acls.table.acls) == list(expected)


def test_the_file_is_for_the_broker_alone(tmp_path: Path) -> None:
    store = acls(tmp_path)
    store.add([rule()])
    path = tmp_path / "metadata-log"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    log = path / "__metadata-0" / f"{0:020d}.log"
    before = log.read_bytes()
    store.add([rule()])
    assert log.read_bytes() == before  # nothing changed, nothing written


@pytest.mark.parametrize(
    "changed",
    [
        {"resource_type": ResourceType.ANY},
        {"resource_type": ResourceType.TRANSACTIONAL_ID},
        {"resource_type": ResourceType.CLUSTER},
        {"pattern_type": PatternType.MATCH},
        {"resource_name": ""},
        {"resource_name": "x" * 1025},
        {"resource_name": "a\nb"},
        {"principal": "alice"},
        {"principal": "User:"},
        {"principal": ":alice"},
        {"host": ""},
        {"operation": Operation.ANY},
        {"permission": Permission.ANY},
    ],
)
def test_what_is_no_rule(changed: dict[str, Any]) -> None:
    assert problem_of(rule(**changed)) is not None


def test_what_is_one() -> None:
    assert problem_of(rule()) is None
    cluster: dict[str, Any] = {"resource_type": ResourceType.CLUSTER, "resource_name": CLUSTER_NAME}
    assert problem_of(rule(**cluster)) is None


def test_there_are_not_endlessly_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horolog.server.security.acl_store.MAX_ACLS", 2)
    store = acls(tmp_path)
    with pytest.raises(InvalidRequest, match="there would be 3 rules; allowed are 2"):
        store.add([rule(name) for name in "abc"])
    assert store.acls.table.acls == ()


def test_a_rule_that_is_gone_counts_for_no_further_question(tmp_path: Path) -> None:
    """What is kept of decisions belongs to the rules by which they were made."""
    store = acls(tmp_path)
    asked = (Operation.READ, ResourceType.TOPIC, "clicks")
    authorizer = Authorizer(store.acls, lambda *_: None)
    assert not authorizer.rights("User:alice", "::1").may(*asked)
    for _ in range(3):
        store.add([rule()])
        rights = authorizer.rights("User:alice", "::1")
        assert rights.may(*asked)
        assert rights.readable == {"clicks"}
        assert not authorizer.rights("User:bob", "::1").may(*asked)
        store.remove(lambda _: True)
        assert not authorizer.rights("User:alice", "::1").may(*asked)
        assert authorizer.rights("User:alice", "::1").readable == set()


def test_what_is_kept_of_decisions_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MAX_DECISIONS", "MAX_REMEMBERED"):
        monkeypatch.setattr(f"horolog.server.security.acl_store.{name}", 4)
    store = acls(tmp_path)
    store.add([rule("t", pattern_type=PatternType.PREFIXED, principal="User:*")])
    authorizer = Authorizer(store.acls, lambda *_: None)
    for number in range(50):
        rights = authorizer.rights(f"User:{number}", "::1")
        for topic in range(20):
            assert rights.may(Operation.READ, ResourceType.TOPIC, f"t{topic}")
            assert len(rights.readable) <= 4
    assert len(authorizer._rights) <= 4


FILTERS = st.builds(
    AclFilter,
    resource_type=st.sampled_from([1, 2, 3]),
    resource_name=st.sampled_from([None, *NAMES, "abcd"]),
    pattern_type=st.sampled_from([1, 2, 3, 4]),
    principal=st.sampled_from([None, "User:x", "User:*"]),
    host=st.sampled_from([None, "*", "127.0.0.1"]),
    operation=st.sampled_from([1, 2, 3, 4]),
    permission_type=st.sampled_from([1, 2, 3]),
)


@examples(400)
@given(acls=st.lists(RULES, max_size=6), asked=st.lists(FILTERS, max_size=6))
def test_many_filters_mean_what_each_of_them_means(acls: list[Acl], asked: list[AclFilter]) -> None:
    filters = [Filter(each) for each in asked]
    together = Filters(filters)
    for acl in acls:
        meaning = [number for number, each in enumerate(filters) if each.means(acl)]
        assert together.first(acl) == min(meaning, default=None)
