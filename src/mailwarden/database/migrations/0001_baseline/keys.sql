-- API keys, and the calls that each has made in the current minute.

-- Row: an API key.
-- Written by: administrators, with the command, the API and the console; abby notes its use.
-- Deleted by: nothing; a key is revoked or expires.
CREATE TABLE api_keys (
    key_id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    secret bytea NOT NULL, -- HMAC-SHA-256 with the server's pepper; the key itself is shown once and never stored
    scopes text[] NOT NULL,
    tenants uuid[] NOT NULL DEFAULT '{}', -- the tenants it is bound to; empty for a deployment key
    is_global boolean NOT NULL DEFAULT false,
    networks cidr[] NOT NULL DEFAULT '{}', -- from which it may be used; empty: from everywhere
    created timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    expires timestamptz,
    revoked timestamptz,
    last_used timestamptz,
    -- Rotation writes both: the new key names the old one, and the old one, which still works for a while, the new one.
    replaces text COLLATE "C",
    replaced_by text COLLATE "C",
    first_used timestamptz,
    first_address inet,
    CHECK (is_global <> (cardinality(tenants) > 0))
);

-- Row: the calls of an API key in the current minute, of all abby processes. UNLOGGED, because a crash of PostgreSQL
-- costs one minute's count only.
-- Written by: abby, which leases some calls at a time.
-- Deleted by: abby, an hour after the minute.
CREATE UNLOGGED TABLE rate_windows (
    subject text PRIMARY KEY,
    ends timestamptz NOT NULL,
    taken integer NOT NULL, -- calls that processes have leased in this window
    granted integer NOT NULL -- of them, by the last lease
);
