"""The answers of both versions to one message, and what differs between them."""

import json
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

SHOWN = 20  # messages whose difference is printed
_REASON = ("rule", "verdict", "weight", "summary", "place", "tag")  # of the explanation; the analyzer may be renamed
_OWN = ("ggrid", "created", "completed")  # fields of an answer that belong to one submission

# Everything that an answer says, by the name of the field; a field without order is sorted.
Answer = Mapping[str, Sequence[str]]


class Difference(Struct, frozen=True):
    """A message that the two versions answer differently, both times."""

    message: str
    way: str
    base: Answer
    present: Answer

    def lines(self) -> Iterator[str]:
        """Yield the message and its way, and below what only one version says: - is the base, + the present one."""
        yield f"{self.message} by {self.way}"
        for name in dict.fromkeys((*self.base, *self.present)):
            before, after = self.base.get(name, ()), self.present.get(name, ())
            for sign, one, other in (("-", before, after), ("+", after, before)):
                yield from (f"  {sign} {name}: {value}" for value in one if value not in other)


def explained(explanation: Mapping[str, object]) -> dict[str, Sequence[str]]:
    """Return verdict, decision, tags and reasons of `GET /v1/messages/{ggrid}`; ids and times are left out."""
    reasons, tags = explanation["reasons"], explanation["tags"]
    assert isinstance(reasons, list)
    assert isinstance(tags, list)
    return {
        "verdict": (str(explanation["verdict"]),),
        "decision": (str(explanation["decision"]),),
        "tags": sorted(tags),
        "reasons": sorted(" | ".join(str(reason[name]) for name in _REASON) for reason in reasons),
    }


def replied(status: int, body: bytes) -> dict[str, Sequence[str]]:
    """Return the status of submitEmail, and the fields of its answer without ids and times."""
    try:
        fields = json.loads(body)
    except ValueError:
        fields = {"body": body.decode("latin-1")}
    said = {f"answer {name}": _values(value) for name, value in sorted(fields.items()) if name not in _OWN}
    return {"status": (str(status),)} | said


def _values(value: object) -> Sequence[str]:
    return sorted(map(str, value)) if isinstance(value, list) else (str(value),)


def print_differences(differences: Sequence[Difference], answers: int) -> None:
    for difference in differences[:SHOWN]:
        print("\n".join(difference.lines()))
    if len(differences) > SHOWN:
        print(f"... and {len(differences) - SHOWN} more")
    print(f"{len(differences)} of {answers} answers differ")
