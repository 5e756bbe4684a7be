"""Makes text from clients, files or other brokers safe to print on a terminal."""


def printable(text: str) -> str:
    """Return `text` with every unprintable character as a Python escape.

    These are control characters (C0, DEL, C1), characters that change the direction of writing,
    line and paragraph separators, and lone surrogates. So no text can move the cursor, change the
    title of the terminal, begin a new line or reorder what is shown.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )
