"""The error of a schedule in which a promise was broken."""


class Violation(AssertionError):
    """An invariant does not hold. The text says which one, and where."""
