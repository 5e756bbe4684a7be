"""The one place where exceptions become error codes, and where answers are searched for errors."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any

from ..protocol.api.pieces import Pieces
from ..protocol.api.schema import Array, all_fields
from ..protocol.api.writing import Source
from ..protocol.errors import ERRORS, NO_ERROR, CodedError, StorageError, UnknownServerError
from ..storage.events import Observer

NO_ERROR_NAME = "NONE"

Outcome = tuple[int, str]
"""Error code and message."""


class CloseConnection(Exception):
    """The request cannot be answered, and the connection has to be closed. The text says why."""

    def __init__(self, cause: str, code: int) -> None:
        super().__init__(cause)
        self.code = code
        """The error that could not be sent."""


class Outcomes:
    """Turns an exception of a handler into the error of the answer."""

    def __init__(self, observe: Observer) -> None:
        self.observe = observe

    def of(self, error: Exception, *, api: str) -> Outcome:
        """Return code and message for `error`, which handling a request of `api` raised.

        An unexpected exception is logged with its traceback; the client gets no internals.
        """
        if isinstance(error, CodedError):
            return error.code, error.message
        if isinstance(error, OSError):
            self.observe("storage_failed", api=api, error=error)
            reason = error.strerror or type(error).__name__
            return StorageError.code, f"the broker's disk refused the operation: {reason}"
        self.observe("request_failed", api=api, error=error)
        return UnknownServerError.code, "the broker met something unexpected; its log says what"

    def timestamp_refused(self, topic: str, partition: int, error: CodedError) -> None:
        """Log that a record set was refused because of a message's time: many clients show their
        users only the error code."""
        self.observe("timestamp_refused", topic=topic, partition=partition, error=error)


def error_name(code: int) -> str:
    """Return the name of an error code, as metrics show it."""
    if code == NO_ERROR:
        return NO_ERROR_NAME
    known = ERRORS.get(code)
    return known.name if known is not None else str(code)


def first_error(body: Any) -> int:
    """Return the first error code in a response, in the order of its fields; 0 if there is none."""
    struct: type = type(body)
    return error_finder(struct)(body)


@cache
def error_finder(struct: type) -> Callable[[Any], int]:
    """Return the function `first_error` for one message class."""
    source = Source("def find(body):", {})
    _add_search(source, struct, "body")
    source.add(f"return {NO_ERROR}")
    find: Callable[[Any], int] = source.function(f"first_error of {struct.__name__}")
    return find


def first_error_in_pieces(body: Any) -> Pieces[int]:
    """As `first_error`, for a response with many items, in pieces."""
    struct: type = type(body)
    pieces: Pieces[int] = _error_finder_in_pieces(struct)(body)
    return pieces


@cache
def _error_finder_in_pieces(struct: type) -> Callable[[Any], Pieces[int]]:
    source = Source("def find(body):", {})
    _add_search(source, struct, "body", pieces=True)
    source.add("yield")  # It is a generator in any case.
    source.add(f"return {NO_ERROR}")
    find: Callable[[Any], Pieces[int]] = source.function(f"errors of {struct.__name__}")
    return find


@cache
def fault_finder(struct: type) -> Callable[[Sequence[Any]], bool]:
    """Return a function that says whether any of several responses of one message class has an
    error code.

    Its loops run in C, because most responses have none.
    """
    names = {"chained": chain.from_iterable, "code_of": attrgetter("error_code")}
    source = Source("def find(bodies):", names)
    found = []
    for arrays in _paths_to_errors(struct):
        items = "bodies"
        for array in arrays:
            items = f"chained(map({source.name(attrgetter(array))}, {items}))"
        found.append(f"any(map(code_of, {items}))")
    source.add(f"return {' or '.join(found) or False}")
    find: Callable[[Sequence[Any]], bool] = source.function(f"faults of {struct.__name__}")
    return find


def _paths_to_errors(struct: type) -> Iterator[tuple[str, ...]]:
    """Yield, for each error code of a message class, the arrays that lead to it."""
    for spec in all_fields(struct):
        if spec.name == "error_code":
            yield ()
        elif isinstance(spec.type, Array) and isinstance(spec.type.of, type):
            for arrays in _paths_to_errors(spec.type.of):
                yield spec.name, *arrays


def _add_search(source: Source, struct: type, value: str, *, pieces: bool = False) -> None:
    """Add code that returns the first error code of `value`, or of an item in its arrays. With
    `pieces` it yields after each item that has items itself."""
    if any(spec.name == "error_code" for spec in all_fields(struct)):
        source.add(f"if {value}.error_code: return {value}.error_code")
    for spec in all_fields(struct):
        if isinstance(spec.type, Array) and isinstance(spec.type.of, type):
            inner: type = spec.type.of
            if _has_error(inner):
                item = f"{value}_{spec.name}"
                source.add(f"for {item} in {value}.{spec.name}:")
                source.indent()
                _add_search(source, inner, item, pieces=pieces)
                if pieces and any(isinstance(each.type, Array) for each in all_fields(inner)):
                    source.add("yield")
                source.dedent()


def _has_error(struct: type) -> bool:
    """Whether a message class, or the items of its arrays, have an error code."""
    return any(
        spec.name == "error_code"
        or (
            (isinstance(spec.type, Array) and isinstance(spec.type.of, type))
            and _has_error(spec.type.of)
        )
        for spec in all_fields(struct)
    )
