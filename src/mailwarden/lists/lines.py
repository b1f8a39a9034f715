"""The lines of listEntries: PostgreSQL writes the JSON, and Python passes the bytes on.

Security: a line is put together from stored text. Entries of the kinds named here hold no quote, no backslash and no
control character; those of any other kind are written by to_json. Comments and names are stored as JSON strings.
"""

from collections.abc import Awaitable, Callable

from mailwarden.database.pool import Connection

PLAIN_KINDS = frozenset({"sender", "ip", "url", "hash", "sha256", "attachment", "recipient", "domain-or-ip", "domain"})
# Control characters, which no line can hold, stand for the marks of CSV: so no line is ever quoted or split.
_DELIMITER = "\x01"
_QUOTE = "\x02"

# The entries that never matched and never expire, nearly all of a large list, end in one constant.
_TAIL = """
CASE WHEN hits = 0 AND expires IS NULL AND last_hit IS NULL THEN ',"expires":null,"hits":0,"lastHit":null}'
     ELSE ',"expires":' || coalesce('"' || expires || '"', 'null') || ',"hits":' || hits
          || ',"lastHit":' || coalesce('"' || last_hit || '"', 'null') || '}'
END
"""


def copy_statement(kind_name: str, list_id: int) -> str:
    """Return the query whose one column is the lines of a list in order."""
    entry = "'\"' || entry || '\"'" if kind_name in PLAIN_KINDS else "to_json(entry)::text"
    return f"""
    SELECT '{{"entry":' || {entry} || ',"comment":' || comment
        || ',"created":"' || created || '","createdBy":' || created_by
        || ',"updated":"' || updated || '","updatedBy":' || updated_by || {_TAIL}
    FROM list_entries WHERE list_id = {list_id} ORDER BY entry
    """  # noqa: S608 -- a number of ours and constants of this file


async def copy_lines(
    connection: Connection, kind_name: str, list_id: int, sink: Callable[[bytes], Awaitable[None]]
) -> None:
    """Give all lines of a list to the sink; the database waits while the sink does."""
    statement = copy_statement(kind_name, list_id)
    await connection.copy_from_query(statement, output=sink, format="csv", delimiter=_DELIMITER, quote=_QUOTE)
