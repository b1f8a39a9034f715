-- History: finished messages, and what is counted of them.

-- Row: a finished message of one tenant, in one partition a day. The day is part of the ggrid, so that a ggrid leads to
-- its partition, and a second guard that stores the same message writes the same row. If history is in ClickHouse, its
-- rows are there and this table is empty.
-- Written by: guard, from its journal.
-- Deleted by: guard, a day after `history.retentionDays`, and the rows of a tenant with a shorter `retention_days`.
--
-- No row-level security here: with it PostgreSQL does not use the index of terms, and a search would read every row of
-- every tenant. The store compares the tenants of the Scope in each statement, and in each row before it returns it.
CREATE TABLE history (
    day date NOT NULL,
    ggrid uuid NOT NULL,
    tenant uuid NOT NULL,
    created timestamptz NOT NULL,
    completed timestamptz NOT NULL,
    source text NOT NULL, -- the scan source
    guard text NOT NULL, -- the name of the guard
    envelope_from text NOT NULL,
    recipients text[] NOT NULL,
    from_address text NOT NULL,
    subject text NOT NULL,
    message_id text NOT NULL,
    sha256 text NOT NULL, -- of the raw message
    verdict text NOT NULL,
    decision text NOT NULL,
    tags text[] NOT NULL,
    url_hosts text[] NOT NULL,
    -- The whole finished guard request, as guard's journal had it: JSON in UTF-8, compressed with zstd.
    record bytea NOT NULL,
    remote_address inet,
    terms bigint[] NOT NULL DEFAULT '{}', -- one number for each exact term of the message (see search/terms.py)
    -- The words of the message, without accents and case, by field and with the tenant (see search/words.py). The
    -- index finds words by their beginning.
    words tsvector NOT NULL,
    campaign uuid, -- within the tenant
    shared_campaign uuid, -- over all tenants, for users who see all tenants
    PRIMARY KEY (day, ggrid, tenant)
) PARTITION BY RANGE (day);
ALTER TABLE history ALTER COLUMN record SET STORAGE EXTERNAL; -- it is compressed already
CREATE INDEX history_terms ON history USING gin (terms);
CREATE INDEX history_words ON history USING gin (words);

-- Row: history of a tenant, or of the deployment under the nil uuid, counted for five minutes or an hour: verdicts,
-- decisions, tags and classes of duration (see history/postgresql/statistics.py).
-- Written by: guard, every 30 seconds; of several guards, one at a time.
-- Deleted by: guard: the counts of five minutes after three hours, those of an hour after eight days.
CREATE TABLE history_rollups (
    tenant uuid NOT NULL,
    hourly boolean NOT NULL,
    bucket timestamptz NOT NULL,
    counts jsonb NOT NULL,
    PRIMARY KEY (tenant, hourly, bucket)
);
CREATE INDEX history_rollups_bucket ON history_rollups (hourly, bucket);

-- Row: the only one: the time up to which history is counted, and from which it must be counted again for late rows.
-- Written by: guard, when it counts and when it stores a late row.
-- Deleted by: nothing.
CREATE TABLE history_rolled (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    rolled_to timestamptz NOT NULL,
    late_from timestamptz
);

-- Row: counts of verdicts, decisions and `policy.monitor` of a tenant on a day, for weekly reports. The deployment has
-- the nil uuid, also for a day without mail: that row shows that the day was counted.
-- Written by: guard, when the day has ended, from history_rollups.
-- Deleted by: guard, 100 days later.
CREATE TABLE history_days (
    tenant uuid NOT NULL,
    day date NOT NULL,
    counts jsonb NOT NULL,
    PRIMARY KEY (tenant, day)
);
CREATE INDEX history_days_day ON history_days (day);

-- Row: the key of a row that ClickHouse stores, for some days: a batch that is sent again counts and announces nothing
-- twice.
-- Written by: guard, with a batch of rows, if history is in ClickHouse.
-- Deleted by: guard, three days after the last attempt.
CREATE TABLE history_ledger (
    ggrid uuid NOT NULL,
    tenant uuid NOT NULL,
    added date NOT NULL,
    PRIMARY KEY (ggrid, tenant)
);
CREATE INDEX history_ledger_added ON history_ledger (added);
