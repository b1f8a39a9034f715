"""Copies made-up history from PostgreSQL to ClickHouse in bulk, column by column, day by day."""

from datetime import date
from pathlib import Path

import asyncpg

from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.clickhouse.schema import NAMES
from mailwarden.history.postgresql.statistics import CLASSES_PER_DOUBLING, LAST_CLASS

SECONDS = 600.0  # of one day
# The text form of both servers has the same escapes. Made-up values have neither quotes nor backslashes.
_ROWS = f"""
SELECT to_char(day, 'YYYY-MM-DD'), floor(extract(epoch FROM created))::bigint / 3600,
       floor(extract(epoch FROM created))::bigint, replace(tenant::text, '-', ''), replace(ggrid::text, '-', ''),
       9223372036854775808 - floor(extract(epoch FROM completed) * 1000000)::numeric, verdict, decision,
       least({LAST_CLASS}, floor(log(2.0, greatest(extract(epoch FROM completed - created) * 1000, 1))
                                 * {CLASSES_PER_DOUBLING}))::int,
       {{tags}}, envelope_from, from_address, {{recipients}}, {{url_hosts}}, subject,
       encode(substring(inet_send(remote_address) FROM 5), 'hex'), '[' || array_to_string(terms, ',') || ']',
       chr(31) || array_to_string(tsvector_to_array(words), chr(31)) || chr(31), convert_from(record, 'UTF8')
FROM history WHERE day = $1 ORDER BY ggrid
""".format(**{name: f"'[' || array_to_string(ARRAY(SELECT quote_literal(each) FROM unnest({name}) each), ',') || ']'"
              for name in ("tags", "recipients", "url_hosts")})  # fmt: skip
_COLUMNS = (
    "day Date, hour UInt32, at UInt32, tenant String, ggrid String, version UInt64, verdict String, decision String, "
    "duration_class UInt8, tags Array(String), envelope_from String, from_address String, recipients Array(String), "
    "url_hosts Array(String), subject String, remote_address String, terms Array(Int64), words String, record String"
)
_INSERT = f"""
INSERT INTO history ({NAMES})
SELECT day, hour, at, toFixedString(unhex(tenant), 16), toFixedString(unhex(ggrid), 16), version, verdict, decision,
       duration_class, tags, envelope_from, from_address, recipients, url_hosts, subject,
       toFixedString('', 16), toFixedString('', 16), unhex(remote_address), terms, words, record
FROM file('{{file}}', 'TSV', '{_COLUMNS}')
"""


async def copy_day(connection: asyncpg.Connection, clickhouse: Clickhouse, day: date, folder: Path) -> None:
    """Copy the rows of a day through a file in a folder that both processes read."""
    file = folder / f"{day}.tsv"
    try:
        await connection.copy_from_query(_ROWS, day, output=file, timeout=SECONDS)
        await clickhouse.execute(_INSERT.format(file=file), SECONDS)
    finally:
        file.unlink(missing_ok=True)
