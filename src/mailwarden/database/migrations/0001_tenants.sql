-- Tenants and the recipient domains that belong to them.
CREATE TABLE tenants (
    uid uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name text NOT NULL,
    profile text NOT NULL DEFAULT 'balanced' CHECK (profile IN ('balanced', 'strict')),
    is_default boolean NOT NULL DEFAULT false,
    created timestamptz NOT NULL DEFAULT now()
);

CREATE UNIQUE INDEX tenants_name ON tenants (lower(name));
CREATE UNIQUE INDEX tenants_one_default ON tenants (is_default) WHERE is_default;

-- The primary key is the promise that a domain belongs to one tenant.
CREATE TABLE tenant_domains (
    domain text COLLATE "C" PRIMARY KEY CHECK (domain = lower(domain) AND domain ~ '^[a-z0-9.-]+$'),
    tenant uuid NOT NULL REFERENCES tenants (uid) ON DELETE CASCADE
);

CREATE INDEX tenant_domains_tenant ON tenant_domains (tenant);

-- One number that changes with every change above, so that a reader of 10,000 tenants asks for one row.
CREATE TABLE tenants_version (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version bigint NOT NULL
);

INSERT INTO tenants_version (version) VALUES (1);

CREATE FUNCTION count_tenants_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tenants_version SET version = version + 1;
    RETURN NULL;
END
$$;

CREATE TRIGGER tenants_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON tenants
    FOR EACH STATEMENT EXECUTE FUNCTION count_tenants_change();
CREATE TRIGGER tenant_domains_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON tenant_domains
    FOR EACH STATEMENT EXECUTE FUNCTION count_tenants_change();

INSERT INTO tenants (name, is_default) VALUES ('default', true);
