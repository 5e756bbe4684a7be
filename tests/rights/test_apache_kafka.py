"""The same questions asked of Apache Kafka's StandardAuthorizer: the same answers."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from horolog.bench.apache_kafka import SMALL_JVM, class_path, why_unavailable
from horolog.protocol.api.security.acl_terms import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from horolog.server.security.acls import Acl, AclTable, Resource

RULE_SETS = 1000
QUESTIONS = 20
SECONDS = 800

_TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)
_OPERATIONS = tuple(each for each in Operation if each > Operation.ALL)
_NAMES = ("a", "ab", "abc", "b", "ba", "*")
_ASKED = ("a", "ab", "abc", "abcd", "b", "c")
_PRINCIPALS = ("User:x", "User:y", "User:*")
_HOSTS = ("127.0.0.1", "10.1.2.3", "::1")
_RULE_HOSTS = ("*", "*", "127.0.0.1", "0:0:0:0:0:0:0:1")
_SUPER = "User:root"


def _rule(choose: random.Random) -> Acl:
    kind = choose.choice(_TYPES)
    cluster = kind is ResourceType.CLUSTER
    literal = cluster or choose.random() < 0.5
    return Acl(
        resource_type=kind,
        pattern_type=PatternType.LITERAL if literal else PatternType.PREFIXED,
        resource_name=CLUSTER_NAME if cluster else choose.choice(_NAMES),
        principal=choose.choice(_PRINCIPALS),
        host=choose.choice(_RULE_HOSTS),
        operation=choose.choice((Operation.ALL, *_OPERATIONS)),
        permission=choose.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )


@pytest.mark.timeout(900)
def test_the_answers_of_apache_kafka(pytestconfig: pytest.Config) -> None:
    reason = why_unavailable()
    if reason is not None and os.environ.get("HOROLOG_REQUIRE") == "all":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
    choose = random.Random(pytestconfig.getoption("--hypothesis-seed"))
    lines: list[str] = []
    asked: list[str] = []
    ours: list[str] = []
    for _ in range(RULE_SETS):
        rules = [_rule(choose) for _ in range(choose.randrange(12))]
        table = AclTable(rules, [_SUPER])
        lines.append("clear")
        lines += ["\t".join(("rule", *_parts(acl))) for acl in table.acls]
        for _ in range(QUESTIONS):
            who = choose.choice(("User:x", "User:y", "User:z", _SUPER))
            host, operation = choose.choice(_HOSTS), choose.choice(_OPERATIONS)
            kind = choose.choice(_TYPES)
            name = CLUSTER_NAME if kind is ResourceType.CLUSTER else choose.choice(_ASKED)
            question = [who, host, operation.name, kind.name]
            if choose.random() < 0.2:
                allowed = table.decide_any(who, host, operation, kind)
                asked.append("\t".join(("any", *question)))
            else:
                allowed = table.decide(who, host, operation, Resource(kind, name)).allowed
                asked.append("\t".join(("ask", *question, name)))
            lines.append(asked[-1])
            ours.append("ALLOWED" if allowed else "DENIED")
    theirs = _answers(lines)
    assert len(theirs) == len(ours)
    wrong = [each for each in zip(asked, ours, theirs, strict=True) if each[1] != each[2]]
    assert wrong[:10] == []
    assert set(ours) == {"ALLOWED", "DENIED"}


def _parts(acl: Acl) -> tuple[str, ...]:
    return (
        acl.resource_type.name,
        acl.pattern_type.name,
        acl.resource_name,
        acl.principal,
        acl.host,
        acl.operation.name,
        acl.permission.name,
    )


def _answers(lines: list[str]) -> list[str]:
    program = Path(__file__).with_name("Questions.java")
    done = subprocess.run(
        ["java", *SMALL_JVM, "-cp", class_path(), str(program), _SUPER],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
