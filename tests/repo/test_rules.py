"""`docs/rules.md` and the tests: what they cite is there, and what is there has its place."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

RULE = re.compile(
    r"\b(?:(?:M|P|F|L|I|R|RT|S|TR|FO|MG|C|B|V)-[0-9][0-9A-F]?|D[0-9]{1,2})\b(?![-.\w])"
    r"|\b[Dd]ecisions? (\d+)"
)
"""The families of `docs/rules.md`."""


def cited(text: str) -> Iterator[str]:
    """The rules that a text names, as the page writes them."""
    for match in RULE.finditer(text):
        yield f"decision {match[1]}" if match[1] else match[0]


@pytest.fixture(scope="module")
def page(root: Path) -> dict[str, str]:
    """The places of the rules, by their ids."""
    rows = re.findall(
        r"^\| ([\w -]+?) \| .+ \| `(.+)` \|$",
        (root / "docs" / "rules.md").read_text("utf-8"),
        re.MULTILINE,
    )
    found = dict(rows)
    assert len(found) == len(rows) > 300
    return found


def test_what_is_cited_is_on_the_page(
    root: Path, sources: list[Path], page: dict[str, str]
) -> None:
    missing = {
        f"{path}: {rule}"
        for path in sources
        if path.suffix == ".py" and path.name != "test_rules.py"
        for rule in cited((root / path).read_text("utf-8"))
        if rule not in page
    }
    assert missing == set()


def test_every_rule_has_its_place(root: Path, page: dict[str, str]) -> None:
    assert {place for place in page.values() if not (root / place).exists()} == set()


def test_the_pattern_sees_what_tests_write() -> None:
    text = "L-20, RT-3 (I-1A), decision 26 and Decision 8; D17; UTF-8, CRC-32 and MPL-2.0 are none"
    assert list(cited(text)) == ["L-20", "RT-3", "I-1A", "decision 26", "decision 8", "D17"]
