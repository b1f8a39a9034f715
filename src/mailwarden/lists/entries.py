"""The entries of one call: all normalised, folded and sorted, or every mistake told at once."""

from collections.abc import Iterable, Mapping, Sequence

from mailwarden.errors import EntryTooBroad, InvalidEntry, TooManyEntries
from mailwarden.lists.catalogue import ListDefinition
from mailwarden.lists.kinds import Entry

MAX_ENTRIES = 500
_SHOWN = 200


def read_entries(definition: ListDefinition, texts: Sequence[str]) -> list[Entry]:
    """Return the entries in the order given, one for each text, or raise one error that lists all that is wrong.

    Where some are invalid and some too broad, the error is InvalidEntry.
    """
    _check_number(texts)
    entries: list[Entry] = []
    details: list[Mapping[str, object]] = []
    invalid = False
    for index, text in enumerate(texts):
        try:
            entries.append(definition.normalise(text))
        except (InvalidEntry, EntryTooBroad) as error:
            details.append(_detail(index, text, error.message))
            invalid = invalid or isinstance(error, InvalidEntry)
    if invalid:
        raise InvalidEntry(f"{_count(len(details))} cannot be taken into {definition.name}.", details=details)
    if details:
        raise EntryTooBroad(f"{_count(len(details))} would cover too much for {definition.name}.", details=details)
    return entries


def spell_entries(definition: ListDefinition, texts: Sequence[str]) -> list[Entry]:
    """Return what may be stored of the texts, each once and sorted: what cannot be an entry is left out."""
    _check_number(texts)
    return sorted(set(_spelled(definition, texts)))


def _spelled(definition: ListDefinition, texts: Iterable[str]) -> Iterable[Entry]:
    for text in texts:
        try:
            yield definition.spell(text)
        except (InvalidEntry, EntryTooBroad):
            continue


def _check_number(texts: Sequence[str]) -> None:
    if len(texts) > MAX_ENTRIES:
        raise TooManyEntries(f"One call takes at most {MAX_ENTRIES} entries, not {len(texts)}.")


def _detail(index: int, text: str, reason: str) -> Mapping[str, object]:
    # Half a surrogate pair cannot be written as UTF-8, and an answer must not repeat all of a hostile entry.
    return {"index": index, "entry": _writable(text[:_SHOWN]), "reason": _writable(reason)}


def _writable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _count(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"
