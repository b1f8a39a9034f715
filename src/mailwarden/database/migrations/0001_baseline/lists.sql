-- Lists and their entries, and what changed in them.

-- Row: a list of the catalogue that a tenant, or the global scope, has used.
-- Written by: abby, at the first entry; each later call changes the counter.
-- Deleted by: nothing but the deletion of the tenant.
CREATE TABLE lists (
    list_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant uuid REFERENCES tenants (uid) ON DELETE CASCADE, -- NULL: the global scope
    name text COLLATE "C" NOT NULL,
    entries integer NOT NULL DEFAULT 0 CHECK (entries >= 0),
    UNIQUE NULLS NOT DISTINCT (tenant, name)
) WITH (fillfactor = 50); -- the counter changes with every call that adds or deletes
ALTER TABLE lists ENABLE ROW LEVEL SECURITY;
ALTER TABLE lists FORCE ROW LEVEL SECURITY;
CREATE POLICY lists_scope ON lists USING (sees_tenant(tenant)) WITH CHECK (sees_tenant(tenant));

-- Row: an entry of a list.
-- Written by: abby, for the List API, the console, the command and feeds; guard adds the hits.
-- Deleted by: the same, an undo, and abby a day after `expires`.
--
-- Times are RFC 3339 text in UTC of one length, as they are shown: formatting them is what costs when 10 million
-- entries are streamed. comment, created_by and updated_by are kept as JSON strings with their quotes for the same reason.
-- No foreign key: checking it row by row cost a third of an insert of 500. The policy below admits existing lists
-- alone, and the trigger below clears up after a list.
CREATE TABLE list_entries (
    list_id integer NOT NULL,
    entry text COLLATE "C" NOT NULL,
    comment text COLLATE "C" NOT NULL,
    created text COLLATE "C" NOT NULL,
    created_by text COLLATE "C" NOT NULL,
    updated text COLLATE "C" NOT NULL,
    updated_by text COLLATE "C" NOT NULL,
    expires text COLLATE "C",
    hits bigint NOT NULL DEFAULT 0,
    last_hit text COLLATE "C",
    -- comment and expires before the last update, if it changed them: PostgreSQL 15 returns only new rows of an update.
    previous jsonb,
    PRIMARY KEY (list_id, entry) WITH (fillfactor = 90)
) WITH (fillfactor = 85);
-- Costs nothing for entries that never expire.
CREATE INDEX list_entries_expires ON list_entries (expires) WHERE expires IS NOT NULL;
ALTER TABLE list_entries ENABLE ROW LEVEL SECURITY;
ALTER TABLE list_entries FORCE ROW LEVEL SECURITY;

-- The lists that a transaction sees are looked up once a statement, by index: there may be 160,000 of them in all.
CREATE FUNCTION seen_lists() RETURNS integer[] LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    scope text := coalesce(current_setting('mailwarden.scope', true), '');
BEGIN
    IF scope IN ('', 'all') THEN
        RETURN '{}';
    ELSIF scope = 'global' THEN
        RETURN ARRAY(SELECT list_id FROM lists WHERE tenant IS NULL);
    END IF;
    RETURN ARRAY(SELECT list_id FROM lists WHERE tenant = scope::uuid);
END
$$;

CREATE POLICY list_entries_scope ON list_entries USING (
    list_id = ANY ((SELECT seen_lists())::integer[]) OR (SELECT current_setting('mailwarden.scope', true)) = 'all'
);

-- Called last in a transaction that added or deleted entries: the lock on the list's row is held while it commits,
-- and no longer. Where a list is full the transaction fails, and nothing of it is kept.
CREATE FUNCTION count_entries(counted_list integer, added integer, max_size integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE lists SET entries = entries + added
        WHERE list_id = counted_list AND (added <= 0 OR entries + added <= max_size);
    IF FOUND THEN
        RETURN;
    ELSIF EXISTS (SELECT FROM lists WHERE list_id = counted_list) THEN
        RAISE EXCEPTION 'the list is full' USING ERRCODE = 'MW001';
    END IF;
    RAISE EXCEPTION 'the list is gone' USING ERRCODE = 'MW002';
END
$$;

-- Row: a call that changed a list. The replicas of the guards read from it which entries changed; the console shows who
-- changed them, from where, the new values and the old ones. A reader takes the transactions that its last snapshot did
-- not see, so that it does not skip a change that commits after a younger one.
-- Written by: the transaction of the call, and the trigger below for a list that is gone.
-- Deleted by: guard, 30 days later.
CREATE TABLE list_changes (
    change bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
    changed timestamptz NOT NULL DEFAULT now(),
    list_id integer NOT NULL,
    entries text[] COMPRESSION lz4 NOT NULL, -- none: the list itself is gone
    action text NOT NULL DEFAULT '', -- none: the list itself is gone
    moment text COLLATE "C" NOT NULL DEFAULT '', -- what the entries have in `updated` since
    author text COLLATE "C" NOT NULL DEFAULT '', -- what the entries have in `updated_by` since
    address text,
    request_id text NOT NULL DEFAULT '',
    touched integer NOT NULL DEFAULT 0,
    added integer NOT NULL DEFAULT 0,
    deleted integer NOT NULL DEFAULT 0,
    comments text[] COMPRESSION lz4, -- the new one of each entry, a JSON string; NULL: left as it was
    expiries text[] COMPRESSION lz4, -- the same; an empty one: none
    -- Each entry that existed: {entry: {comment, expires}}, of a deleted one also created, created_by, hits and last_hit;
    -- null if its values stayed the same. A comment is a string that holds a JSON string: jsonb refuses \u0000.
    replaced jsonb COMPRESSION lz4,
    removed text[] COMPRESSION lz4, -- of an undo, those of its entries that it deleted
    undoes bigint -- the change that this one undoes
);
CREATE INDEX list_changes_transaction ON list_changes (transaction, change);
-- Changes of one list, newest first; and the change that undoes another.
CREATE INDEX list_changes_list ON list_changes (list_id, change);
CREATE INDEX list_changes_undoes ON list_changes (undoes) WHERE undoes IS NOT NULL;

CREATE FUNCTION clear_list() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    scope text := coalesce(current_setting('mailwarden.scope', true), '');
BEGIN
    PERFORM set_config('mailwarden.scope', 'all', true);
    DELETE FROM list_entries WHERE list_id = OLD.list_id;
    INSERT INTO list_changes (list_id, entries) VALUES (OLD.list_id, '{}');
    PERFORM set_config('mailwarden.scope', scope, true);
    RETURN NULL;
END
$$;

CREATE TRIGGER list_cleared AFTER DELETE ON lists FOR EACH ROW EXECUTE FUNCTION clear_list();
