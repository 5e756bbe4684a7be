"""`tests/rules.md` and the tests: what they cite is there, and what is there is cited, and has its
place."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

FAMILIES = "RT|TR|FO|MG|M|P|F|L|I|R|S|C|B|V"
RULE = re.compile(
    rf"(?<!\w)((?:{FAMILIES})-)([0-9][0-9A-F]?)(?: to \1([0-9][0-9A-F]?))?(?!\w|\.\d)"
)
CONTRADICTION = re.compile(r"(?<!\w)D[0-9]{1,2}(?!\w|\.\d)")
DECISIONS = re.compile(r"[Dd]ecisions?[ _](\d+(?:(?:, | and |, and )\d+)*)")
CASE = re.compile(r"(?<![A-Za-z0-9])tc(\d+[a-c]?)(?![a-z0-9])")
FAULT = re.compile(r"(?<![A-Za-z0-9])[Ff]aults?[ _]?(\d+)(?![A-Za-z0-9])|(?<=def test_)(\d\d)(?=_)")
TEST_NAME = re.compile(r"\bdef test_(\w+)")
IN_A_NAME = re.compile(rf"_({FAMILIES.lower()})_?([0-9][0-9a-f]?)(?=_|$)")

FORMATS = {"V-0", "V-1", "V-2", "V-3"}
"""In the name of a test, these are versions of formats and requests."""

NOT_TESTED: dict[str, str] = {}
"""Rules that no test proves, and why."""


def cited(text: str) -> Iterator[str]:
    """The numbers that a text names, as the page writes them; of ranges both ends."""
    for family, first, last in RULE.findall(text):
        yield family + first
        if last:
            yield f"{family}{first} to {family}{last}"
            yield family + last
    yield from CONTRADICTION.findall(text)
    for numbers in DECISIONS.findall(text):
        yield from (f"decision {number}" for number in re.findall(r"\d+", numbers))
    yield from (f"tc{number}" for number in CASE.findall(text))
    yield from (f"fault {int(number or of_name)}" for number, of_name in FAULT.findall(text))
    for name in TEST_NAME.findall(text):
        for family, number in IN_A_NAME.findall(name):
            rule = f"{family}-{number}".upper()
            if rule not in FORMATS:
                yield rule


@dataclass(frozen=True, slots=True)
class Page:
    """`tests/rules.md`."""

    places: dict[str, str]
    """The files that keep the rules."""
    cases: dict[str, list[str]]
    """The rules that test cases prove."""
    faults: set[str]

    @property
    def numbers(self) -> set[str]:
        return self.places.keys() | self.cases.keys() | self.faults

    def within(self, citation: str) -> list[str]:
        """The numbers of a citation: those in between if it is a range."""
        first, _, last = citation.partition(" to ")
        if not last:
            return [first]
        family, low = first.split("-")
        bounds = range(int(low, 16), int(last.split("-")[1], 16) + 1)
        ids = [rule.split("-") for rule in self.places if rule.startswith(f"{family}-")]
        return [f"{family}-{number}" for _, number in ids if int(number, 16) in bounds]


def rows(text: str, pattern: str) -> list[tuple[str, str]]:
    return re.findall(pattern, text, re.MULTILINE)


@pytest.fixture(scope="module")
def page(root: Path) -> Page:
    text = (root / "tests" / "rules.md").read_text("utf-8")
    rules = rows(text, r"^\| ([\w -]+?) \| .+ \| `(.+)` \|$")
    cases = rows(text, r"^\| (tc\w+) \| .+ \| (.+) \|$")
    faults = rows(text, r"^\| (fault \d+) \| (.+) \|$")
    found = Page(
        dict(rules),
        {case: proved.split(", ") for case, proved in cases},
        {fault for fault, _ in faults},
    )
    assert len(found.numbers) == len(rules) + len(cases) + len(faults)
    assert len(rules) > 300
    assert len(cases) > 150
    assert len(faults) > 40
    return found


@pytest.fixture(scope="module")
def citations(root: Path, sources: list[Path]) -> dict[str, set[str]]:
    """What the tests cite, and where."""
    found: dict[str, set[str]] = {}
    for path in sources:
        if path.suffix == ".py" and path.parts[0] == "tests" and path.name != "test_rules.py":
            for number in cited((root / path).read_text("utf-8")):
                found.setdefault(number, set()).add(str(path))
    return found


def test_what_is_cited_is_on_the_page(page: Page, citations: dict[str, set[str]]) -> None:
    missing = {
        number: places
        for number, places in citations.items()
        if " to " not in number and number not in page.numbers
    }
    assert missing == {}


def test_every_number_on_the_page_is_cited(page: Page, citations: dict[str, set[str]]) -> None:
    """By a test, or by that of a case that proves it."""
    direct = {number for citation in citations for number in page.within(citation)}
    by_case = {rule for case in page.cases.keys() & direct for rule in page.cases[case]}
    assert page.numbers - direct - by_case == NOT_TESTED.keys()


def test_cases_prove_rules_of_the_page(page: Page) -> None:
    proved = {rule for rules in page.cases.values() for rule in rules}
    assert proved - page.places.keys() == set()


def test_every_rule_has_its_place(root: Path, page: Page) -> None:
    assert {place for place in page.places.values() if not (root / place).exists()} == set()


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("L-20, RT-3 (I-1A), D17.", ["L-20", "RT-3", "I-1A", "D17"]),
        ('"""F-12."""', ["F-12"]),
        ('id="tc49-P-10-acks"', ["P-10", "tc49"]),
        ("decision 26 and Decision 8; test_x_decision_5", [26, 8, 5]),
        ("decisions 5, 20 and 21)", [5, 20, 21]),
        ("FO-1 to FO-11", ["FO-1", "FO-1 to FO-11", "FO-11"]),
        ("def test_a_set_tc38(", ["tc38"]),
        ("def test_one_tc5_m6(x) -> fault3:", ["tc5", "fault 3", "M-6"]),
        ("def test_v1_data_p_2a_v14(", ["P-2A", "V-14"]),
        ("Fault 39: fault14-late, def test_faults_4_x", ["fault 39", "fault 14", "fault 4"]),
        ("def test_27_the_file(", ["fault 27"]),
        ("UTF-8, CRC-32, MPL-2.0, F-1.5, tc9x, D1x, default1", []),
    ],
)
def test_the_patterns_see_what_tests_write(text: str, numbers: list[str | int]) -> None:
    wanted = [f"decision {number}" if isinstance(number, int) else number for number in numbers]
    assert list(cited(text)) == wanted
