-- What every change of a list replaced, so that it can be told and undone.

-- A row of list_changes told the replicas which entries to look at. It now tells people as well who changed them, from
-- where, what was given and what was there before. Texts that hold several values are parted by U+001F, rows by U+001E.
ALTER TABLE list_changes
    ADD COLUMN action text NOT NULL DEFAULT '', -- none: made before this was kept, or by a list that is gone
    ADD COLUMN moment text COLLATE "C" NOT NULL DEFAULT '', -- what the entries have in `updated` since
    ADD COLUMN author text COLLATE "C" NOT NULL DEFAULT '', -- what the entries have in `updated_by` since
    ADD COLUMN address text,
    ADD COLUMN request_id text NOT NULL DEFAULT '',
    ADD COLUMN touched integer NOT NULL DEFAULT 0,
    ADD COLUMN added integer NOT NULL DEFAULT 0,
    ADD COLUMN deleted integer NOT NULL DEFAULT 0,
    ADD COLUMN comments text COMPRESSION lz4, -- given for each entry; U+001E: left as it was
    ADD COLUMN expiries text COMPRESSION lz4, -- the same; an empty one: without an end
    -- Of each entry that was there: itself, comment, expires; of one that is gone also created, created_by, hits, last_hit.
    -- An entry alone was told anew what it had already.
    ADD COLUMN replaced text COMPRESSION lz4,
    ADD COLUMN removed text[] COMPRESSION lz4, -- of an undoing, those of its entries that it took away
    ADD COLUMN undoes bigint; -- the change that this one took back

-- What the last update of an entry replaced, comment and expires, where it changed them: an update cannot tell what it
-- found in any other way, but for reading all its entries once more.
ALTER TABLE list_entries ADD COLUMN previous text COLLATE "C";

-- Changes of one list, the newest first; and what took a change back.
CREATE INDEX list_changes_list ON list_changes (list_id, change);
CREATE INDEX list_changes_undoes ON list_changes (undoes) WHERE undoes IS NOT NULL;
