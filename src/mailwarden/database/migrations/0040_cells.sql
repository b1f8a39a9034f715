-- Cells: the directory of a fleet (tenant, domain, API key -> cell), and where this deployment's own tenants are.

-- The directory. Every database has these tables; a fleet uses those of the one that `cells.directory.url` names.
CREATE TABLE cell_directory (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    version bigint NOT NULL DEFAULT 0, -- counts changes; a changed row has the number of its change
    salt bytea -- of the sender history, the same in all cells
);
INSERT INTO cell_directory DEFAULT VALUES;

CREATE TABLE cell_tenants (
    tenant uuid PRIMARY KEY,
    cell text NOT NULL,
    version bigint NOT NULL, -- of the tenant's place: every move increments it, and the higher one is right
    changed bigint NOT NULL
);
CREATE INDEX cell_tenants_changed ON cell_tenants (changed);

CREATE TABLE cell_domains (
    domain text COLLATE "C" PRIMARY KEY,
    tenant uuid, -- NULL: the domain was removed
    changed bigint NOT NULL
);
CREATE INDEX cell_domains_changed ON cell_domains (changed);
CREATE INDEX cell_domains_tenant ON cell_domains (tenant);

CREATE TABLE cell_keys (
    key_id text COLLATE "C" PRIMARY KEY,
    cell text, -- NULL: the key was removed
    changed bigint NOT NULL
);
CREATE INDEX cell_keys_changed ON cell_keys (changed);

-- Places of tenants that moved or are being moved. A tenant without a row is here, with version 0.
CREATE TABLE tenant_places (
    tenant uuid PRIMARY KEY,
    state text NOT NULL CHECK (state IN ('here', 'draining', 'leaving', 'moved', 'arriving')),
    version bigint NOT NULL,
    cell text NOT NULL, -- the other cell of the last move
    until timestamptz, -- the end of `draining`
    changed timestamptz NOT NULL DEFAULT now()
);
CREATE TRIGGER tenant_places_changed AFTER INSERT OR UPDATE OR DELETE ON tenant_places
    FOR EACH STATEMENT EXECUTE FUNCTION count_tenants_change();

-- For statements over all tenants: a job skips those that it may not change, and access ends where a tenant is not.
CREATE FUNCTION accepts_changes(asked uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT NOT EXISTS (
        SELECT FROM tenant_places AS place WHERE place.tenant = asked AND place.state NOT IN ('here', 'draining'))
$$;
CREATE FUNCTION is_here(asked uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT NOT EXISTS (
        SELECT FROM tenant_places AS place WHERE place.tenant = asked AND place.state IN ('moved', 'arriving'))
$$;

-- Writers of a tenant share a lock that a move takes alone, so that no write is in flight once it has the lock. The
-- check is part of the writer's transaction: a process with old knowledge cannot change a tenant that has moved.
CREATE FUNCTION require_tenant_here(asked uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found text;
BEGIN
    IF asked IS NULL OR NOT EXISTS (SELECT FROM tenant_places WHERE tenant = asked)
       OR current_setting('mailwarden.mover', true) = asked::text THEN
        RETURN;
    END IF;
    IF NOT pg_try_advisory_xact_lock_shared(1836540773, hashtext(asked::text)) THEN
        RAISE EXCEPTION 'the tenant % is being moved', asked USING ERRCODE = 'MW010';
    END IF;
    SELECT state INTO found FROM tenant_places WHERE tenant = asked;
    IF found NOT IN ('here', 'draining') THEN
        RAISE EXCEPTION 'the tenant % is not in this cell', asked USING ERRCODE = 'MW010';
    END IF;
END
$$;

CREATE FUNCTION fence_tenant_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM require_tenant_here(CASE WHEN TG_OP = 'DELETE' THEN OLD.tenant ELSE NEW.tenant END);
    RETURN NULL;
END
$$;

CREATE FUNCTION fence_tenant() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM require_tenant_here(OLD.uid);
    RETURN NULL;
END
$$;

CREATE FUNCTION fence_tenants_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM require_tenant_here(each) FROM unnest(OLD.tenants) AS each;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        PERFORM require_tenant_here(each) FROM unnest(NEW.tenants) AS each;
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION fence_list_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM require_tenant_here(tenant) FROM lists WHERE list_id = NEW.list_id;
    RETURN NULL;
END
$$;

CREATE FUNCTION fence_held_recipient() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM require_tenant_here(tenant) FROM quarantine WHERE uid = NEW.message;
    RETURN NULL;
END
$$;

CREATE TRIGGER fence AFTER UPDATE OR DELETE ON tenants FOR EACH ROW EXECUTE FUNCTION fence_tenant();
CREATE TRIGGER fence AFTER INSERT OR UPDATE OR DELETE ON tenant_domains
    FOR EACH ROW EXECUTE FUNCTION fence_tenant_row();
CREATE TRIGGER fence AFTER INSERT ON lists FOR EACH ROW EXECUTE FUNCTION fence_tenant_row();
CREATE TRIGGER fence AFTER INSERT ON list_changes FOR EACH ROW EXECUTE FUNCTION fence_list_change();
CREATE TRIGGER fence AFTER INSERT OR UPDATE OR DELETE ON quarantine
    FOR EACH ROW EXECUTE FUNCTION fence_tenant_row();
CREATE TRIGGER fence AFTER INSERT OR UPDATE ON quarantine_recipients
    FOR EACH ROW EXECUTE FUNCTION fence_held_recipient();
CREATE TRIGGER fence AFTER INSERT OR UPDATE OR DELETE ON quarantine_digests
    FOR EACH ROW EXECUTE FUNCTION fence_tenant_row();
CREATE TRIGGER fence AFTER INSERT OR UPDATE OR DELETE ON lessons FOR EACH ROW EXECUTE FUNCTION fence_tenant_row();
CREATE TRIGGER fence AFTER INSERT OR UPDATE OR DELETE ON learning FOR EACH ROW EXECUTE FUNCTION fence_tenant_row();
CREATE TRIGGER fence AFTER INSERT OR UPDATE OR DELETE ON cases FOR EACH ROW EXECUTE FUNCTION fence_tenant_row();
CREATE TRIGGER fence AFTER INSERT OR UPDATE OR DELETE ON case_reports
    FOR EACH ROW EXECUTE FUNCTION fence_tenant_row();
CREATE TRIGGER fence AFTER INSERT OR UPDATE OR DELETE ON weekly_reports
    FOR EACH ROW EXECUTE FUNCTION fence_tenant_row();
CREATE TRIGGER fence AFTER INSERT OR UPDATE OR DELETE ON weekly_report_mails
    FOR EACH ROW EXECUTE FUNCTION fence_tenant_row();
CREATE TRIGGER fence AFTER INSERT OR DELETE OR UPDATE OF name, settings, secret ON feeds
    FOR EACH ROW EXECUTE FUNCTION fence_tenant_row();
-- The times of use change with every call, and are no reason to refuse one.
CREATE TRIGGER fence AFTER INSERT OR DELETE OR UPDATE OF name, scopes, tenants, networks, expires, revoked ON api_keys
    FOR EACH ROW EXECUTE FUNCTION fence_tenants_row();
CREATE TRIGGER fence AFTER INSERT OR DELETE OR UPDATE OF name, email, role, tenants, password, totp, disabled ON people
    FOR EACH ROW EXECUTE FUNCTION fence_tenants_row();
CREATE TRIGGER fence AFTER INSERT OR DELETE OR UPDATE OF name, url, types, tenants, state, secret ON event_endpoints
    FOR EACH ROW EXECUTE FUNCTION fence_tenants_row();
