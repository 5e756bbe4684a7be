"""The part of docs/clients.md about programs that `tests/ecosystem` runs."""

import re
from collections.abc import Iterator
from typing import Final

from .installing import PROGRAMS

_HEAD: Final = """\
## Programs that keep their state in compacted topics

`make ecosystem` runs these, each as it comes from its registry, unchanged, against a broker in a
process of its own. The first one is in every test run.
"""

_PROGRAMS: Final = (
    ("quixstreams", "quixstreams", "counts words with state; goes on after its files are lost"),
    ("faust", "faust-streaming", "counts words in a table; goes on after a restart"),
    ("java", "Kafka Connect", "distributed: file source to file sink, stop, resume"),
    ("java", "Kafka Streams", "word count; goes on after its files are lost"),
    ("java", "MirrorMaker 2", "copies a topic from a real Kafka 3.9.1"),
)
"""The folder of `programs`, the name, and what the test has it do."""

_NOT_TRIED: Final = ("goka", "Flink", "Celery", "Spark's own source for Kafka")

_VERSIONS: Final = {
    "requirements.txt": r"^{name}==(\S+)",
    "pom.xml": r"<kafka.version>(.*?)<",
}


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
    for file, pattern in _VERSIONS.items():
        path = PROGRAMS / folder / file
        if path.exists():
            found = re.search(pattern.format(name=name), path.read_text("utf-8"), re.MULTILINE)
            assert found is not None, path
            return found[1]
    raise AssertionError(f"nothing says the version of {name}")
