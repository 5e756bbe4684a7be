"""The page about groups says what the table of states says."""

from collections.abc import Iterator
from pathlib import Path

from horolog.server.groups.states import RULES, Rejoin, State, Sync

PAGE = Path(__file__).parents[2] / "docs" / "groups.md"


def in_words(rule: Rejoin | Sync | type | None) -> str:
    if rule is None:
        return "taken"
    return str(rule) if isinstance(rule, Rejoin | Sync) else str(rule.code)  # type: ignore[attr-defined]


def rows() -> Iterator[str]:
    for state, rules in RULES.items():
        after = ", ".join(f"`{each}`" for each in State if each in rules.next) or "-"
        cells = (rules.rejoin, rules.sync, rules.heartbeat, rules.commit)
        yield f"| `{state}` | {after} | {' | '.join(in_words(each) for each in cells)} |"


def test_the_page_has_the_table_of_states() -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    first = lines.index("<!-- states -->") + 3
    assert lines[first : first + len(RULES)] == list(rows())
