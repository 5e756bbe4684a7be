"""What a schedule shows when something promised does not hold."""


class Violation(AssertionError):
    """An invariant does not hold; the text says which one, where."""
