"""Text that clients, files or another broker brought, in a form that a terminal only shows."""


def printable(text: str) -> str:
    """`text` with everything escaped, as Python writes it, that is no character to be seen.

    That is control characters (C0, DEL, C1), what turns or isolates the direction of writing,
    separators of lines and paragraphs, and halves of characters: none of them can move a cursor,
    change a title, begin another line or reorder what is read.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )
