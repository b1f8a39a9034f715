-- Held messages. Their bytes are encrypted in a vault: a row is written after they are stored durably, and they are
-- removed after no row points to them.

-- Row: the only one, the id of this deployment, which it writes into its vault: only the owner of a vault removes
-- messages from it. A backup leaves the row out: a restored database draws a new id, so that it is not the owner of
-- production's vault.
-- Written by: this file, and guard or `mailwarden restore` in a restored database.
-- Deleted by: nothing.
CREATE TABLE deployment (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    uid uuid NOT NULL DEFAULT gen_random_uuid(),
    claims boolean NOT NULL DEFAULT false -- whether it claims a vault that has messages and no owner
);
INSERT INTO deployment (claims) VALUES (true);

-- Row: a held message of one tenant.
-- Written by: guard, which holds it.
-- Deleted by: guard, after `expires`, unless a release is in progress.
CREATE TABLE quarantine (
    uid uuid PRIMARY KEY,
    tenant uuid NOT NULL REFERENCES tenants (uid) ON DELETE CASCADE,
    ggrid uuid NOT NULL, -- the same for each tenant of a message
    vault uuid NOT NULL, -- where the bytes are
    address bytea CHECK (octet_length(address) = 32), -- under which; NULL once they are given up
    size bigint NOT NULL,
    sender text NOT NULL,
    from_address text NOT NULL,
    from_name text NOT NULL,
    subject text NOT NULL,
    verdict text NOT NULL,
    reason text NOT NULL DEFAULT '', -- the strongest one, a sentence
    received timestamptz NOT NULL,
    expires timestamptz NOT NULL,
    missing boolean NOT NULL DEFAULT false, -- the bytes are not where they should be, or not what they were
    whole boolean NOT NULL DEFAULT false, -- whether analysis looked at all of the message
    UNIQUE (tenant, ggrid)
);
CREATE INDEX quarantine_newest ON quarantine (tenant, received DESC, uid DESC);
CREATE INDEX quarantine_newest_of_all ON quarantine (received DESC, uid DESC);
CREATE INDEX quarantine_expires ON quarantine (expires);
CREATE INDEX quarantine_bodies ON quarantine (vault, address) WHERE address IS NOT NULL;

-- Row: a recipient of a held message, with its own state.
-- Written by: guard, with the message and when it releases it; abby, for a user who releases or deletes it.
-- Deleted by: guard, with the message.
CREATE TABLE quarantine_recipients (
    message uuid NOT NULL REFERENCES quarantine (uid) ON DELETE CASCADE,
    number integer NOT NULL, -- the place in the envelope
    recipient text NOT NULL,
    folded text NOT NULL, -- in lower case, for searches
    state text NOT NULL DEFAULT 'held' CHECK (state IN ('held', 'releasing', 'released', 'deleted')),
    failure text NOT NULL DEFAULT '', -- why the last release failed
    changed_by text NOT NULL DEFAULT '',
    changed_at timestamptz,
    claimed_until timestamptz, -- until then one guard releases it
    -- When a digest listed it for the recipient. One for each, because rows do not commit in the order of their times.
    told_at timestamptz,
    train boolean NOT NULL DEFAULT false, -- whether the release also trains the tenant's statistics, as its user chose
    PRIMARY KEY (message, number)
);
CREATE INDEX quarantine_recipients_named ON quarantine_recipients (folded, message);
CREATE INDEX quarantine_recipients_releasing ON quarantine_recipients (changed_at) WHERE state = 'releasing';
-- Finds the few messages that users have released, for the search `is:released`.
CREATE INDEX quarantine_recipients_released ON quarantine_recipients (message) WHERE state = 'released';

-- Row: a recipient who gets a digest, and the day for which it was last tried: one guard claims each, once a day.
-- Written by: guard.
-- Deleted by: guard, on a later day.
CREATE TABLE quarantine_digests (
    tenant uuid NOT NULL REFERENCES tenants (uid) ON DELETE CASCADE,
    recipient text NOT NULL, -- as quarantine_recipients.folded
    tried date,
    PRIMARY KEY (tenant, recipient)
);

-- Row: bytes in the vault that no message points to (orphans). guard checks them again under a lock and removes them.
-- Written by: the transaction that takes `address` from a message, and guard, which searches the vault for such bytes.
-- Deleted by: guard, when the bytes are removed or needed again.
CREATE TABLE quarantine_leavings (
    vault uuid NOT NULL,
    tenant uuid NOT NULL,
    address bytea NOT NULL,
    PRIMARY KEY (vault, tenant, address)
);

-- Row: a release token that was used: each lets one released message pass a guard without a scan, once.
-- Written by: the guard that the message passes.
-- Deleted by: that guard, if the delivery failed; guard, a day after `expires`.
CREATE TABLE quarantine_passes (
    pass uuid PRIMARY KEY,
    expires timestamptz NOT NULL
);
