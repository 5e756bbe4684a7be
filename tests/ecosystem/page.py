"""The part of docs/clients.md about programs that `tests/ecosystem` runs."""

import json
import re
from collections.abc import Iterator
from typing import Final

from horolog.tests.clients.kafka_js import SOURCES

from .installing import PROGRAMS

_HEAD: Final = """\
## Frameworks, and programs with their state in topics

`make ecosystem` runs each of these, unchanged, as its registry has it: celery, faust-streaming and
Spark's source and sink at the broker of [the fixture](testing.md) `kafka_bootstrap`; the others,
and all windows by name, at a broker in a process of its own. Every test run includes the program in
the first row. [A window by its name](kafka-windows.md) means: the program reads the window from its
first message to the end, and then late messages, also in a partition that had none.
"""

_WINDOW: Final = "a window by its name"

_PROGRAMS: Final = (
    ("quixstreams", "quixstreams", "counts words with state; goes on after its files are lost"),
    ("faststream", "faststream", "a subscriber is called with what was published"),
    ("faust", "faust-streaming", "counts words in a table; goes on after a restart"),
    ("java", "Kafka Connect", "distributed: file source to file sink, stop, resume"),
    ("java", "Kafka Streams", "word count; goes on after its files are lost"),
    ("java", "MirrorMaker 2", "copies a topic from a real Kafka 3.9.1"),
    (
        "spark",
        "Spark's own source and sink for Kafka",
        "a batch between two times; a stream that goes on from its checkpoint, "
        "into a compacted topic; a window by its name, in a batch and as a stream",
    ),
    (
        "flink",
        "Flink",
        "a bounded job between two times; a job that goes on from its checkpoint; "
        "a window by its name, bounded and unbounded",
    ),
    ("celery", "celery", "tasks, also those sent while no worker runs; the next worker goes on"),
    ("java", "Kafka's console consumer and consumer groups", _WINDOW),
    ("tools", "the same of a newer Kafka", _WINDOW),
    ("kafkajs", "kafkajs", f"{_WINDOW}; at the end it fetches as often as its wait allows"),
    ("faststream", "faststream", _WINDOW),
    ("franz-go", "franz-go", _WINDOW),
    ("duckdb", "duckdb", f"{_WINDOW}, which kcat writes as JSON"),
)
"""The folder of `programs`, the name, and what the test has it do."""

_NOT_TRIED: Final = ("goka", "kafkactl", "topicctl", "Terraform's provider for Kafka")


def lines() -> Iterator[str]:
    """The section, line by line."""
    yield from _HEAD.splitlines()
    yield ""
    yield "| program | version | what it does |"
    yield "|---|---|---|"
    for folder, name, what in _PROGRAMS:
        yield f"| {name} | {_version(folder, name)} | {what} |"
    yield ""
    yield f"Not tried: {', '.join(_NOT_TRIED)}."


def _version(folder: str, name: str) -> str:
    """The version that a test installs; behind it that of a part released apart."""
    packages = PROGRAMS / folder / "requirements.txt"
    if packages.exists():
        found = re.search(rf"^{name}==(\S+)", packages.read_text("utf-8"), re.MULTILINE)
        if found:
            return found[1]
    if folder == "kafkajs":
        packages = json.loads((SOURCES / "package.json").read_text("utf-8"))["dependencies"]
        return str(packages[name])
    modules = PROGRAMS / folder / "go.mod"
    if modules.exists():
        (required,) = re.findall(r"^require \S+ v(\S+)$", modules.read_text("utf-8"), re.MULTILINE)
        return str(required)
    text = (PROGRAMS / folder / "pom.xml").read_text("utf-8")
    (_, first), *more = re.findall(r"<(\w+)\.version>(.*?)<", text)
    return ", ".join((first, *(f"{part} {version}" for part, version in more)))
