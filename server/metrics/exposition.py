"""Prometheus' text format, made line by line.

A broker with a thousand topics has 40,000 lines. They are made one at a time, so that
the caller can give way to others in between.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One line."""

    labels: Labels
    """Names and values."""
    value: float
    suffix: str = ""
    """What is behind the family's name: `_bucket`."""


class Family(NamedTuple):
    """Lines of one name."""

    name: str
    """As the lines have it, for a counter with `_total`; without what a histogram adds."""
    kind: str
    """`counter`, `gauge` or `histogram`."""
    meaning: str
    labels: tuple[str, ...]
    """Names of the labels, those of a histogram's buckets aside."""
    samples: Iterable[Sample | None]
    """Made when they are asked for; None is only a place where others may be let through."""


def text_lines(families: Iterable[Family]) -> Iterator[str]:
    """The lines, with their ends; empty strings where there was nothing but work."""
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
