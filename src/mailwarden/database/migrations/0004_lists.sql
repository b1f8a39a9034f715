-- Lists: one row for each list of the catalogue that a scope has used, and its entries, kept narrow.

-- Which rows a transaction may see: 'all' (the deployment itself), 'global', or a tenant's uuid. A transaction that
-- did not say sees nothing. This is the second wall between tenants; the first is the service's own check.
CREATE FUNCTION sees_tenant(tenant uuid) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE coalesce(current_setting('mailwarden.scope', true), '')
        WHEN '' THEN false
        WHEN 'all' THEN true
        WHEN 'global' THEN tenant IS NULL
        ELSE tenant = current_setting('mailwarden.scope')::uuid
    END
$$;

CREATE TABLE lists (
    list_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant uuid REFERENCES tenants (uid) ON DELETE CASCADE, -- NULL: the global scope
    name text COLLATE "C" NOT NULL,
    entries integer NOT NULL DEFAULT 0 CHECK (entries >= 0),
    UNIQUE NULLS NOT DISTINCT (tenant, name)
);

ALTER TABLE lists ENABLE ROW LEVEL SECURITY;
ALTER TABLE lists FORCE ROW LEVEL SECURITY;
CREATE POLICY lists_scope ON lists USING (sees_tenant(tenant)) WITH CHECK (sees_tenant(tenant));

-- Times are RFC 3339 text in UTC of one length, as they are shown: formatting them is what costs when 10 million
-- entries are streamed. comment, created_by and updated_by are kept as JSON strings with their quotes for the same reason.
CREATE TABLE list_entries (
    list_id integer NOT NULL REFERENCES lists (list_id) ON DELETE CASCADE,
    entry text COLLATE "C" NOT NULL,
    comment text COLLATE "C" NOT NULL,
    created text COLLATE "C" NOT NULL,
    created_by text COLLATE "C" NOT NULL,
    updated text COLLATE "C" NOT NULL,
    updated_by text COLLATE "C" NOT NULL,
    expires text COLLATE "C",
    hits bigint NOT NULL DEFAULT 0,
    last_hit text COLLATE "C",
    PRIMARY KEY (list_id, entry) WITH (fillfactor = 90)
) WITH (fillfactor = 85);

ALTER TABLE list_entries ENABLE ROW LEVEL SECURITY;
ALTER TABLE list_entries FORCE ROW LEVEL SECURITY;
-- The rows of `lists` that the transaction sees decide; the set is read once a statement and probed by hash.
CREATE POLICY list_entries_scope ON list_entries
    USING (list_id IN (SELECT list_id FROM lists)) WITH CHECK (list_id IN (SELECT list_id FROM lists));

-- What changed, for the replicas in the guards: one row a call, with the entries it touched. A reader takes what is
-- below pg_snapshot_xmin, so that it never passes over a change whose transaction ends later than a younger one.
CREATE TABLE list_changes (
    change bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
    changed timestamptz NOT NULL DEFAULT now(),
    list_id integer NOT NULL,
    entries text[] NOT NULL
);

CREATE INDEX list_changes_transaction ON list_changes (transaction, change);
