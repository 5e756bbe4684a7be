"""Value classes: as frozen, slotted dataclasses, some of them without the check at run time."""

import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from horolog.values import frozen_class, value_class


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


@frozen_class
class Frozen:
    """A value whose fields cannot be assigned to."""

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


def test_a_frozen_value_refuses_to_have_a_field_assigned_or_deleted() -> None:
    one = Frozen("a")
    with pytest.raises(FrozenInstanceError):
        one.name = "b"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del one.name
    assert one == Frozen("a")


def test_a_frozen_value_is_compared_hashed_shown_and_copied_as_others_are() -> None:
    assert {Frozen("a", (1,)), Frozen("a", (1,))} == {Frozen("a", (1,))}
    assert Frozen("a") != Frozen("b")
    assert repr(Frozen("a")) == repr(Usual("a")).replace("Usual", "Frozen")
    assert replace(Frozen("a"), name="b") == Frozen("b")
    assert pickle.loads(pickle.dumps(Frozen("a", (1,)))) == Frozen("a", (1,))
