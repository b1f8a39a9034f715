-- Messages that are held back. Their bytes stand sealed in a vault: a row is written once they are there for good, and
-- they are removed once no row points to them.
CREATE TABLE quarantine (
    uid uuid PRIMARY KEY,
    tenant uuid NOT NULL REFERENCES tenants (uid) ON DELETE CASCADE,
    ggrid uuid NOT NULL UNIQUE,
    vault uuid NOT NULL, -- where the bytes are
    address bytea CHECK (octet_length(address) = 32), -- under which; NULL once they are given up
    size bigint NOT NULL,
    sender text NOT NULL,
    from_address text NOT NULL,
    from_name text NOT NULL,
    subject text NOT NULL,
    verdict text NOT NULL,
    received timestamptz NOT NULL,
    expires timestamptz NOT NULL,
    missing boolean NOT NULL DEFAULT false -- the bytes are not where they should be, or not what they were
);

CREATE INDEX quarantine_newest ON quarantine (tenant, received DESC, uid DESC);
CREATE INDEX quarantine_newest_of_all ON quarantine (received DESC, uid DESC);
CREATE INDEX quarantine_expires ON quarantine (expires);
CREATE INDEX quarantine_bodies ON quarantine (vault, address) WHERE address IS NOT NULL;

CREATE TABLE quarantine_recipients (
    message uuid NOT NULL REFERENCES quarantine (uid) ON DELETE CASCADE,
    number integer NOT NULL,
    recipient text NOT NULL,
    folded text NOT NULL, -- in lower case, for whoever looks for it
    state text NOT NULL DEFAULT 'held' CHECK (state IN ('held', 'releasing', 'released', 'deleted')),
    failure text NOT NULL DEFAULT '', -- why the last release came to nothing
    changed_by text NOT NULL DEFAULT '',
    changed_at timestamptz,
    claimed_until timestamptz, -- a guard releases it just now
    PRIMARY KEY (message, number)
);

CREATE INDEX quarantine_recipients_named ON quarantine_recipients (folded, message);
CREATE INDEX quarantine_recipients_releasing ON quarantine_recipients (changed_at) WHERE state = 'releasing';

-- Bodies that a row has given up, or that never had one: looked at once more under a lock, and removed.
CREATE TABLE quarantine_leavings (
    vault uuid NOT NULL,
    tenant uuid NOT NULL,
    address bytea NOT NULL,
    PRIMARY KEY (vault, tenant, address)
);

-- Passes by which a released message went through a guard unscanned; each lets one message through, once.
CREATE TABLE quarantine_passes (
    pass uuid PRIMARY KEY,
    expires timestamptz NOT NULL
);

-- For how many days a tenant's held messages are kept: an object of verdict, or `default`, and days.
ALTER TABLE tenants ADD COLUMN quarantine_days jsonb NOT NULL DEFAULT '{}'
    CHECK (jsonb_typeof(quarantine_days) = 'object');
