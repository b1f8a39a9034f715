-- The audit log: actions, with actor and address.

-- Row: an audit event: one action of a user, a key or the system.
-- Written by: `record_deed` below, in the transaction of the action.
-- Deleted by: nothing; the trigger below rejects every change.
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
CREATE INDEX audit_tenant_moment ON audit (tenant, moment); -- for the weekly report
CREATE INDEX audit_actor ON audit (actor, number);
CREATE INDEX audit_action ON audit (action, number);

CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is append-only';
END
$$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();

-- The only writer. A statement that changes something calls it, so that both are one transaction.
CREATE FUNCTION record_deed(
    actor text, tenant uuid, action text, subject text, source_address text, request_id text, details jsonb
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO audit (actor, tenant, action, subject, source_address, request_id, details)
    VALUES (actor, tenant, action, subject, source_address::inet, request_id, details)
$$;
