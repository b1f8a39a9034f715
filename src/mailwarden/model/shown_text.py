"""Text of hostile messages, as people may safely read it on one line."""


def shorten(text: str, length: int) -> str:
    """Return at most `length` printable characters of a text, on one line."""
    text = text[: 4 * length]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text)
    text = text.strip()
    return text if len(text) <= length else text[: length - 1] + "…"
