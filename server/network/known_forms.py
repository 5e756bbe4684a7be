"""The forms of requests that are known, of all connections that speak one encoding."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from ...protocol.api.forms.form import Around, Form, Wire
from ...protocol.api.native.frames import Frame

FORMS_MAX: Final = 256
"""Clients and partitions that are known at a time; one more begins anew."""

F = TypeVar("F", bound=Form)


class KnownForms(Generic[F]):
    """Forms of one kind of request."""

    def __init__(self, wire: Wire) -> None:
        self._split = wire.split
        self._forms: dict[Around, F] = {}
        self._learned: set[tuple[object, ...]] = set()

    def learn(self, what: tuple[object, ...], make: Callable[[], F]) -> None:
        """Know from now on the form that `make` gives of requests that ask for `what`."""
        if what in self._learned:
            return  # They come in another form, or were not as usual.
        if len(self._learned) >= FORMS_MAX:
            self._forms.clear()
            self._learned.clear()
        self._learned.add(what)
        form = make()
        if form.around is not None:
            self._forms[form.around] = form

    def find(self, frame: Frame) -> tuple[F, int, int] | None:
        """The form of a request, its correlation id and its number, if the form is known."""
        parts = self._split(frame)
        form = None if parts is None else self._forms.get(parts[0])
        return None if parts is None or form is None else (form, parts[1], parts[2])
