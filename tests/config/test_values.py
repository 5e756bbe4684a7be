"""Value classes: as frozen, slotted dataclasses, but for the check at run time."""

from dataclasses import dataclass, field, replace

import pytest

from horolog.values import value_class


@value_class
class Place:
    """A value."""

    name: str
    offsets: tuple[int, ...] = ()
    notes: list[str] = field(default_factory=list)


@value_class
class Other:
    """Another one, with the same fields."""

    name: str
    offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Usual:
    """As a dataclass is made by itself."""

    name: str
    offsets: tuple[int, ...] = ()


def test_equal_are_those_of_one_class_with_equal_fields() -> None:
    assert Other("a", (1,)) == Other("a", (1,))
    assert Other("a", (1,)) != Other("a", (2,))
    others: list[object] = [Usual("a"), Place("a"), "a"]
    assert Other("a") not in others
    assert Place("a", notes=["x"]) == Place("a", notes=["x"])


def test_hashed_by_their_fields() -> None:
    assert {Other("a", (1,)), Other("a", (1,)), Other("b")} == {Other("b"), Other("a", (1,))}
    with pytest.raises(TypeError, match="unhashable"):
        hash(Place("a"))


def test_shown_as_dataclasses_are() -> None:
    assert repr(Other("a", (1,))) == repr(Usual("a", (1,))).replace("Usual", "Other")


def test_they_are_dataclasses_with_no_more_than_their_fields() -> None:
    assert replace(Other("a"), name="b") == Other("b")
    with pytest.raises(AttributeError):
        Other("a").more = 1  # type: ignore[attr-defined]
