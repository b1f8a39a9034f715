-- Feeds: subscriptions that fill block lists, their entries, and the updates that wait for approval.

-- Row: a feed, and the state of its last run.
-- Written by: administrators; the abby process that updates the feed, with the result.
-- Deleted by: an administrator, with everything below.
CREATE TABLE feeds (
    uid uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant uuid REFERENCES tenants (uid) ON DELETE CASCADE, -- NULL: the global lists
    name text NOT NULL,
    settings jsonb NOT NULL, -- URL, format, list, interval, bounds (feeds/model.py)
    secret bytea, -- a request header, sealed with the contents key
    created timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    next_run timestamptz NOT NULL DEFAULT now(),
    leased_until timestamptz, -- a process is updating this feed
    etag text NOT NULL DEFAULT '',
    modified text NOT NULL DEFAULT '', -- Last-Modified
    fetched timestamptz, -- the last complete answer
    failure text NOT NULL DEFAULT '', -- of the last run
    failures integer NOT NULL DEFAULT 0, -- runs in a row that failed
    UNIQUE NULLS NOT DISTINCT (tenant, name)
);
CREATE INDEX feeds_next_run ON feeds (next_run);
ALTER TABLE feeds ENABLE ROW LEVEL SECURITY;
ALTER TABLE feeds FORCE ROW LEVEL SECURITY;
CREATE POLICY feeds_scope ON feeds USING (sees_tenant(tenant)) WITH CHECK (sees_tenant(tenant));

-- Row: an entry that a feed gave. The list itself says who added an entry: a feed deletes only entries that feeds added
-- and that nobody changed.
-- Written by: abby, when it updates the feed.
-- Deleted by: abby at a later update, `ttlDays` after the feed dropped the entry, or after `expires`.
CREATE TABLE feed_entries (
    feed uuid NOT NULL REFERENCES feeds (uid) ON DELETE CASCADE,
    entry text COLLATE "C" NOT NULL,
    confidence smallint NOT NULL,
    reference text NOT NULL,
    expires text COLLATE "C", -- as in list_entries
    first_seen timestamptz NOT NULL,
    dropped timestamptz, -- the first update without it; NULL: the feed has it
    reported bigint NOT NULL DEFAULT 0, -- hits that were reported as sightings
    PRIMARY KEY (feed, entry)
);
CREATE INDEX feed_entries_dropped ON feed_entries (feed, dropped) WHERE dropped IS NOT NULL;
CREATE INDEX feed_entries_expires ON feed_entries (feed, expires) WHERE expires IS NOT NULL;
CREATE INDEX feed_entries_entry ON feed_entries (entry);
ALTER TABLE feed_entries ENABLE ROW LEVEL SECURITY;
ALTER TABLE feed_entries FORCE ROW LEVEL SECURITY;
CREATE POLICY feed_entries_scope ON feed_entries USING (feed IN (SELECT uid FROM feeds));

-- Row: an update, the content that a feed had at one time, with its state. An update that is being read and one that
-- waits for approval can exist together: the new one replaces the waiting one after it was read and rehearsed.
-- Written by: abby, when it updates the feed; the user who approves or rejects.
-- Deleted by: abby at a later update, if the update was not read to its end or is not among the latest.
CREATE TABLE feed_updates (
    uid uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    feed uuid NOT NULL REFERENCES feeds (uid) ON DELETE CASCADE,
    fetched timestamptz NOT NULL,
    digest bytea NOT NULL, -- of the content
    state text NOT NULL, -- reading, waiting, applying, applied, rejected, superseded
    preview jsonb NOT NULL DEFAULT '{}', -- what it would add and delete, shown before a user decides
    decided timestamptz,
    decided_by text NOT NULL DEFAULT ''
);
CREATE INDEX feed_updates_feed ON feed_updates (feed, fetched DESC);
CREATE UNIQUE INDEX feed_updates_open ON feed_updates (feed) WHERE state IN ('waiting', 'applying');
CREATE UNIQUE INDEX feed_updates_reading ON feed_updates (feed) WHERE state = 'reading';
ALTER TABLE feed_updates ENABLE ROW LEVEL SECURITY;
ALTER TABLE feed_updates FORCE ROW LEVEL SECURITY;
CREATE POLICY feed_updates_scope ON feed_updates USING (feed IN (SELECT uid FROM feeds));

-- Row: an entry of an update that is not applied yet.
-- Written by: abby, while it reads the feed.
-- Deleted by: abby, after the update was applied, rejected or superseded, or with the update.
CREATE TABLE feed_candidates (
    update_uid uuid NOT NULL REFERENCES feed_updates (uid) ON DELETE CASCADE,
    entry text COLLATE "C" NOT NULL,
    confidence smallint NOT NULL,
    reference text NOT NULL,
    expires text COLLATE "C",
    PRIMARY KEY (update_uid, entry)
);
ALTER TABLE feed_candidates ENABLE ROW LEVEL SECURITY;
ALTER TABLE feed_candidates FORCE ROW LEVEL SECURITY;
CREATE POLICY feed_candidates_scope ON feed_candidates USING (update_uid IN (SELECT uid FROM feed_updates));
