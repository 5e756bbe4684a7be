"""Writes the table of docs/security/clients.md from what the tests here are declared to prove."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..client import Client
from ..java_client import JavaClient
from ..kafka_python import KafkaPythonAs010, KafkaPythonAs09
from ..librdkafka import ConfluentKafkaAs09
from ..ours import Horolog, HorologNative
from ..page import version_of
from .ways import CLIENTS, MECHANISMS, UNABLE, is_java, ways

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "security" / "clients.md"
TITLE: Final = "## What is tested of which client"

_HEAD: Final = f"""\
{TITLE}

`make secure-clients` runs these clients through `SASL_SSL://`, and with a client certificate
through `SSL://`, at one broker with `authorization=on`. Each client produces and consumes,
uncompressed and with gzip, continues as a group from its committed offsets, and tries a topic for
which there is no rule. Every test run has some of each kind. `make docs` writes the table from the
declarations of those tests.
"""
_TAIL: Final = """\
Java reads its trusted certificates, and its own certificate, from a file in PEM, JKS or PKCS12.
Each form is tried with each kind of login; with Kafka's tools one form is tried with each. Before
3.0 Java clients accept no PEM key without a password. SCRAM of clients before 1.0 needs
`javax.xml.bind`, which Java had until 10.
"""
_VERSIONED: Final = (JavaClient, Horolog, ConfluentKafkaAs09, KafkaPythonAs09, KafkaPythonAs010)
"""The names of these say it all."""


def lines() -> Iterator[str]:
    """The section, line by line."""
    yield from _HEAD.splitlines()
    yield ""
    yield "| client | " + " | ".join((*MECHANISMS, "stores of Java")) + " |"
    yield "|---" * (len(MECHANISMS) + 2) + "|"
    notes: list[str] = []
    tried = {(way.kind, way.mechanism) for way in ways()}
    for kind in CLIENTS:
        cells = ["yes" if (kind, each) in tried else _no(kind, each, notes) for each in MECHANISMS]
        yield f"| {_name(kind)} | " + " | ".join((*cells, _stores(kind, notes))) + " |"
    yield ""
    for number, note in enumerate(notes, start=1):
        yield f"{number}. {note}."
    yield ""
    yield from _TAIL.splitlines()


def _no(kind: type[Client], what: str, notes: list[str]) -> str:
    reason = UNABLE[kind][what]
    if reason not in notes:
        notes.append(reason)
    return f"no ({notes.index(reason) + 1})"


def _stores(kind: type[Client], notes: list[str]) -> str:
    if not is_java(kind):
        return ""
    forms = ", ".join(dict.fromkeys(way.form for way in ways() if way.kind is kind))
    return f"{forms}; PEM {_no(kind, 'PEM', notes)}" if "PEM" in UNABLE.get(kind, {}) else forms


def _name(kind: type[Client]) -> str:
    if kind is HorologNative or issubclass(kind, _VERSIONED):
        return kind.name
    return f"{kind.name} {version_of(kind)}"


def page() -> str:
    """The whole page, with the section as it should be."""
    before, _, _ = PAGE.read_text("utf-8").partition(f"{TITLE}\n")
    return before + "\n".join(lines()) + "\n"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - it is made for a shell
