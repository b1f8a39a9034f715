"""Collapses white space in texts of any length.

Security: works on hostile text; linear, and a long text is taken piece by piece, so that it needs little memory.
"""

from collections.abc import Iterator

_PIECE = 250_000  # characters that are taken together: all words of a long text at once need ten times its memory


def squeeze(text: str, most: int | None = None) -> str:
    """Return a text with single spaces; with `most`, at least so much of it that more than `most` shows."""
    squeezed: list[str] = []
    length = 0
    for piece in pieces(text):
        if words := " ".join(piece.split()):
            squeezed.append(words)
            length += len(words) + 1
        if most is not None and length > most + 1:
            break
    return " ".join(squeezed)


def pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces that begin with a space, and a short text whole."""
    start = 0
    while start < len(text):
        space = text.find(" ", start + _PIECE)
        end = space if space >= 0 else len(text)
        yield text[start:end]
        start = end
