"""Tells schemathesis what the description cannot: how raw messages are sent, and which queries mean something."""

from datetime import UTC, date, datetime

import schemathesis
from schemathesis.transport.serialization import serialize_binary

MAX_QUERY = 500


@schemathesis.serializer("message/rfc822")
def write_message(context, value):
    return serialize_binary(value)


def parses(read, text) -> bool:
    try:
        read(text)
    except (TypeError, ValueError):
        return False
    return True


@schemathesis.hook
def filter_case(context, case):
    """Leave out addresses that break one of two permitted formats: they may have the other one, or be null.

    schemathesis checks by itself that a value breaks the whole schema, but not if the body has bytes, as a message is.
    """
    mutations = getattr(case.meta.phase.data, "mutations", ()) if case.meta is not None else ()
    pointers = [mutation.schema_pointer for mutation in mutations]
    return not pointers or any("/remoteAddress/anyOf/" not in pointer for pointer in pointers)


@schemathesis.hook
def before_call(context, case, kwargs):
    """Make valid texts meaningful; an invalid one stays as it is, and must be rejected.

    A text is not always a search, a period has to end after its beginning, and statistics cover 100 days.
    """
    query = case.query
    if not query or not case.path.startswith(("/v1/messages", "/v1/statistics")):
        return
    text = query.get("q")
    if isinstance(text, str) and len(text) <= MAX_QUERY:
        query["q"] = "".join(filter(str.isalnum, text.encode("ascii", "ignore").decode()))
    if all(parses(datetime.fromisoformat, query.get(name)) for name in ("since", "until")):
        del query["until"]
    for name in ("from", "to"):
        if parses(date.fromisoformat, query.get(name)) and len(query[name]) == len("2026-01-01"):
            query[name] = datetime.now(UTC).date().isoformat()
