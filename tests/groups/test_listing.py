"""Pages of groups' names, made without sorting all of them at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.server.groups.states import State
from horolog.server.handlers import groups_admin
from horolog.tests.properties.examples import examples

names = st.text("abc", min_size=1, max_size=3)


@examples(200)
@given(
    live=st.sets(names),
    stored=st.sets(names),
    after=st.text("abc", max_size=2),
    fit=st.integers(1, 9),
)
def test_pages_give_what_a_sorted_list_gives(
    live: set[str], stored: set[str], after: str, fit: int
) -> None:
    """The store gives its first names behind `after`, and says whether there are more."""
    behind = sorted(name for name in stored if name > after)
    read, more = behind[:fit], len(behind) > fit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups_admin, "MAX_LISTED", fit)
        found = groups_admin._first_names(list(live), read, after, read[-1] if more else None)
    everything = sorted({name for name in live | stored if name > after})
    assert found[:fit] == everything[:fit]
    assert more or (len(found) > fit) == (len(everything) > fit)


@examples(200)
@given(
    live=st.dictionaries(names, st.sampled_from(State)),
    stored=st.sets(names),
    fit=st.integers(1, 9),
)
def test_groups_with_members_come_first(live: dict[str, State], stored: set[str], fit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups_admin, "MAX_LISTED", fit)
        found = groups_admin._members_first(live, sorted(stored), frozenset(live))
    with_members = sorted(name for name, state in live.items() if state is not State.EMPTY)
    others = sorted((stored | set(live)) - set(with_members))
    assert found == [*with_members, *others][:fit]
