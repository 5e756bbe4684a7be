"""Prometheus' text format, made line by line.

A broker with a thousand topics has 40,000 lines. They are made one at a time, so that the caller
can serve other requests in between.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One line of a metric: labels and a value."""

    labels: Labels
    """Pairs of name and value."""
    value: float
    suffix: str = ""
    """Suffix after the family's name, such as `_bucket`."""


class Family(NamedTuple):
    """A metric family: all lines of one name."""

    name: str
    """Name as in the lines, for a counter with `_total`, for a histogram without suffixes."""
    kind: str
    """Type of the metric: `counter`, `gauge` or `histogram`."""
    meaning: str
    labels: tuple[str, ...]
    """Label names, without the `le` of a histogram's buckets."""
    samples: Iterable[Sample | None]
    """Samples, made on demand. None only marks a place where the caller may serve other
    requests."""


def text_lines(families: Iterable[Family]) -> Iterator[str]:
    """Yield the lines, each with its line end. An empty string stands for work without a line."""
    for family in families:
        meaning = family.meaning.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {family.name} {meaning}\n# TYPE {family.name} {family.kind}\n"
        for sample in family.samples:
            yield "" if sample is None else _line(family.name, sample)


def _line(name: str, sample: Sample) -> str:
    labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sorted(sample.labels))
    shown = f"{{{labels}}}" if labels else ""
    return f"{name}{sample.suffix}{shown} {_number(sample.value)}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))
