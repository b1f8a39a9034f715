-- API keys of the List API, and the append-only audit of what was done with them.
CREATE TABLE api_keys (
    key_id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    secret bytea NOT NULL, -- HMAC-SHA-256 with the server's pepper; the key itself is shown once and never stored
    scopes text[] NOT NULL,
    tenants uuid[] NOT NULL DEFAULT '{}', -- the tenants it is bound to; empty for a deployment key
    is_global boolean NOT NULL DEFAULT false,
    networks cidr[] NOT NULL DEFAULT '{}',
    created timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    expires timestamptz,
    revoked timestamptz,
    last_used timestamptz,
    CHECK (is_global <> (cardinality(tenants) > 0))
);

CREATE TABLE audit (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    moment timestamptz NOT NULL DEFAULT now(),
    actor text NOT NULL,
    tenant uuid, -- NULL: the deployment
    action text NOT NULL,
    subject text NOT NULL,
    source_address inet,
    request_id text NOT NULL DEFAULT '',
    details jsonb NOT NULL DEFAULT '{}'
);

CREATE INDEX audit_tenant ON audit (tenant, number);

CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is append-only';
END
$$;

CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();

-- The one way in: a statement that changes something calls it, so that a deed and its record are one transaction.
CREATE FUNCTION record_deed(
    actor text, tenant uuid, action text, subject text, source_address text, request_id text, details jsonb
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO audit (actor, tenant, action, subject, source_address, request_id, details)
    VALUES (actor, tenant, action, subject, source_address::inet, request_id, details)
$$;
