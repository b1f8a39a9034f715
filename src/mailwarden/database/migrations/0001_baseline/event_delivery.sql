-- Receivers of events.

-- Row: a receiver (webhook, syslog server or file), and the last event that it has acknowledged.
-- Written by: administrators; the abby process that has the lease, after each delivery.
-- Deleted by: an administrator.
CREATE TABLE event_receivers (
    uid uuid PRIMARY KEY,
    name text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('webhook', 'syslog', 'file')),
    format text NOT NULL CHECK (format IN ('native', 'ocsf', 'ecs')),
    url text NOT NULL, -- of a webhook the scheme and host only
    types text[], -- NULL: every type
    tenants uuid[] CHECK (cardinality(tenants) > 0), -- NULL: the deployment, with the events of all tenants
    batch_size integer NOT NULL DEFAULT 1, -- events in one call, sent after batch_seconds at the latest
    batch_seconds integer NOT NULL DEFAULT 0,
    created timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    state text NOT NULL DEFAULT 'enabled' CHECK (state IN ('enabled', 'disabled')),
    secret bytea, -- sealed with the pepper, as is the previous one, which signs too until `previous_until`
    previous_secret bytea,
    previous_until timestamptz,
    cursor text NOT NULL, -- of the outbox: everything before it is acknowledged
    failing_since timestamptz,
    attempts integer NOT NULL DEFAULT 0,
    next_attempt timestamptz NOT NULL DEFAULT now(),
    last_error text NOT NULL DEFAULT '',
    last_delivery timestamptz,
    delivered bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0, -- attempts
    lost bigint NOT NULL DEFAULT 0, -- events that retention removed before they were delivered
    lease uuid, -- the abby process that delivers
    lease_until timestamptz,
    sealed_url bytea, -- of a webhook: its URL can be a secret, and is sealed with the pepper
    CHECK (tenants IS NULL OR kind = 'webhook')
);
CREATE UNIQUE INDEX event_receivers_name ON event_receivers (tenants, lower(name)) NULLS NOT DISTINCT;
