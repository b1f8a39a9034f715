"""The statements that add, update and delete entries, each of which also writes down what it replaced.

What is added or deleted, its line in the audit and its row in list_changes are one statement, so that none is there
without the others. What an update replaces it puts aside in the entry itself, from where it is told.
"""

from collections.abc import Sequence

from msgspec import Struct, UnsetType

from mailwarden.lists.kinds import Entry
from mailwarden.model.actor import Actor


class Changes(Struct, frozen=True):
    """Entries to add or update, sorted and each there once, with a comment and an expiry for each.

    Comments are JSON strings and expiries are text; what is unset keeps what is there.
    """

    entries: Sequence[Entry]
    comments: Sequence[str | UnsetType]
    expiries: Sequence[str | UnsetType | None]


class Stamp(Struct, frozen=True):
    """When a change was made, as text, by whom, and what kind of change it was."""

    moment: str
    author: str  # a JSON string
    actor: Actor
    action: str = ""  # "" is what the statement does by itself: add, delete, expire


# Arrays travel as one text each: the driver looks at every element of an array, which costs more than the upsert's
# own share of a processor. No entry, no JSON string and no time holds these two characters.
MARK, NULL = "\x1f", "\x1e"
ARRAY = r"string_to_array(${}, E'\x1f', E'\x1e')"
# The rows of given entries, each found by the index. PostgreSQL keeps a plan while a list grows; one that was made for
# a short list would read all of it. OFFSET 0 leaves it no other way, and changes are joined by what was found so.
EACH = """
unnest({given}) AS given (entry) CROSS JOIN LATERAL (
    SELECT * FROM list_entries WHERE list_id = $1 AND entry = given.entry {locked} OFFSET 0
) AS kept
"""
_DELETED = r"""
string_agg(entry || E'\x1f' || comment || E'\x1f' || coalesce(expires, '') || E'\x1f' || created || E'\x1f'
           || created_by || E'\x1f' || hits || E'\x1f' || coalesce(last_hit, ''), E'\x1e')
"""
# What an update finds. Only where both are given for every entry can it tell that nothing changes.
_FOUND = r"list_entries.comment || E'\x1f' || coalesce(list_entries.expires, '')"
_FOUND_OTHER = f"""
CASE WHEN list_entries.comment <> EXCLUDED.comment OR list_entries.expires IS DISTINCT FROM EXCLUDED.expires
     THEN {_FOUND} END
"""


def _upsert(*, comments: bool, expiries: bool) -> str:
    """Return the statement that adds and updates; what is not given for every entry of the call is left as it is."""
    changed = "updated = EXCLUDED.updated, updated_by = EXCLUDED.updated_by"
    changed += ", comment = EXCLUDED.comment" if comments else ""
    changed += ", expires = EXCLUDED.expires" if expiries else ""
    changed += f", previous = {_FOUND_OTHER if comments and expiries else _FOUND}"
    return rf"""
    WITH written AS (
        INSERT INTO list_entries (list_id, entry, comment, created, created_by, updated, updated_by, expires)
        SELECT $1, entry, coalesce(comment, '""'), $5, $6, $5, $6, expires
        FROM unnest({ARRAY.format(2)}, {ARRAY.format(3)}, {ARRAY.format(4)}) AS given (entry, comment, expires)
        ON CONFLICT (list_id, entry) DO UPDATE SET {changed}
        RETURNING xmax = 0 AS added, entry, previous
    ), counted AS MATERIALIZED (
        SELECT count(*) AS touched, count(*) FILTER (WHERE added) AS added,
               string_agg(concat_ws(E'\x1f', entry, previous), E'\x1e') FILTER (WHERE NOT added) AS replaced
        FROM written
    ), noted AS (
        INSERT INTO list_changes (list_id, entries, action, moment, author, address, request_id, touched, added,
                                  comments, expiries, replaced)
        SELECT $1, {ARRAY.format(2)}, $12, $5, $6, $10, $11, touched, added, $3, $13, replaced FROM counted
    )
    SELECT added, record_deed($7, $8, 'lists.' || $12, $9, $10, $11,
                              jsonb_build_object('entries', touched, 'added', added))
    FROM counted
    """  # noqa: S608 -- put together from constants of this file


UPSERTS = {(c, e): _upsert(comments=c, expiries=e) for c in (False, True) for e in (False, True)}
# The rows were locked by the statement above, in order; these touch only those that differ.
SET_COMMENTS = f"""
WITH changed AS MATERIALIZED (
    SELECT kept.list_id, kept.entry, given.comment
    FROM unnest({ARRAY.format(2)}, {ARRAY.format(3)}) AS given (entry, comment) CROSS JOIN LATERAL (
        SELECT * FROM list_entries WHERE list_id = $1 AND entry = given.entry OFFSET 0
    ) AS kept
    WHERE kept.comment <> given.comment
)
UPDATE list_entries AS kept SET comment = changed.comment
FROM changed WHERE kept.list_id = changed.list_id AND kept.entry = changed.entry
"""  # noqa: S608
SET_EXPIRIES = f"""
WITH changed AS MATERIALIZED (
    SELECT kept.list_id, kept.entry, given.expires
    FROM unnest({ARRAY.format(2)}, {ARRAY.format(3)}) AS given (entry, expires) CROSS JOIN LATERAL (
        SELECT * FROM list_entries WHERE list_id = $1 AND entry = given.entry OFFSET 0
    ) AS kept
    WHERE kept.expires IS DISTINCT FROM given.expires
)
UPDATE list_entries AS kept SET expires = changed.expires
FROM changed WHERE kept.list_id = changed.list_id AND kept.entry = changed.entry
"""  # noqa: S608
# Where $8 is given, only what expired before it goes: that is asked again once the row is locked.
DELETE = f"""
WITH locked AS MATERIALIZED (
    SELECT kept.list_id, kept.entry FROM {EACH.format(given=ARRAY.format(2), locked="FOR UPDATE")}
    WHERE $8::text IS NULL OR expires < $8
), gone AS (
    DELETE FROM list_entries AS kept USING locked
    WHERE kept.list_id = locked.list_id AND kept.entry = locked.entry
    RETURNING kept.*
), counted AS MATERIALIZED (
    SELECT array_agg(entry) AS entries, count(*) AS deleted, {_DELETED} AS replaced FROM gone
), noted AS (
    INSERT INTO list_changes (list_id, entries, action, moment, author, address, request_id, touched, deleted, replaced)
    SELECT $1, entries, $11, $9, $10, $6, $7, deleted, deleted, replaced FROM counted WHERE deleted > 0
)
SELECT deleted, record_deed($3, $4, 'lists.' || $11, $5, $6, $7, jsonb_build_object('deleted', deleted))
FROM counted WHERE deleted > 0
"""  # noqa: S608


def joined(values: Sequence[str | UnsetType | None]) -> str:
    """Return the values as the one text that the statements take apart; what is unset or None becomes NULL."""
    text = MARK.join([value if isinstance(value, str) else NULL for value in values])
    if text.count(MARK) != len(values) - 1:
        raise ValueError("a value holds the mark that stands between values")
    return text
