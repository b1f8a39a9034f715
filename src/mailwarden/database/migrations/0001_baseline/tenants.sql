-- Tenants and their recipient domains, and the function that row-level security of other files calls.

-- Row: a tenant, with the settings that it has for itself. One of them is the default tenant, for all other domains.
-- Written by: administrators, with the command, the API and the console.
-- Deleted by: nothing; no command deletes a tenant. Its rows in tables with a foreign key (domains, lists, feeds,
-- quarantine, cases, training, weekly reports) would go with it, those of history, senders, campaigns, events and audit
-- would stay.
CREATE TABLE tenants (
    uid uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name text NOT NULL,
    profile text NOT NULL DEFAULT 'balanced' CHECK (profile IN ('balanced', 'strict', 'monitor')),
    is_default boolean NOT NULL DEFAULT false,
    created timestamptz NOT NULL DEFAULT now(),
    retention_days integer CHECK (retention_days BETWEEN 1 AND 100000), -- of its history; NULL: as the deployment
    weights jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(weights) = 'object'), -- rule -> weight, if not the rule's own
    -- Verdict, or `default`, -> days for which held messages stay.
    quarantine_days jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(quarantine_days) = 'object'),
    quarantine_digest boolean NOT NULL DEFAULT false -- whether recipients get the daily digest of what is held
);
CREATE UNIQUE INDEX tenants_name ON tenants (lower(name));
CREATE UNIQUE INDEX tenants_one_default ON tenants (is_default) WHERE is_default;

-- Row: a recipient domain. The primary key is the promise that a domain belongs to one tenant.
-- Written by: as tenants.
-- Deleted by: an administrator who takes the domain from the tenant.
CREATE TABLE tenant_domains (
    domain text COLLATE "C" PRIMARY KEY CHECK (domain = lower(domain) AND domain ~ '^[a-z0-9.-]+$'),
    tenant uuid NOT NULL REFERENCES tenants (uid) ON DELETE CASCADE
);
CREATE INDEX tenant_domains_tenant ON tenant_domains (tenant);

-- Row: the only one, a number that grows with every change of the two tables above. A process that has all tenants in
-- memory reads this row to see whether it must read them again.
-- Written by: the triggers below.
-- Deleted by: nothing.
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

-- Which rows a transaction may see: 'all' (the deployment itself), 'global', or a tenant's uuid. A transaction that
-- did not set it sees nothing. Six tables have such a policy: lists, list_entries, feeds, feed_entries, feed_updates
-- and feed_candidates. For these it is the second wall between tenants. The first wall, and the only one for the other
-- tables with rows of tenants, is the Scope that a store's methods take and compare in their statements.
CREATE FUNCTION sees_tenant(tenant uuid) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE coalesce(current_setting('mailwarden.scope', true), '')
        WHEN '' THEN false
        WHEN 'all' THEN true
        WHEN 'global' THEN tenant IS NULL
        ELSE tenant = current_setting('mailwarden.scope')::uuid
    END
$$;
