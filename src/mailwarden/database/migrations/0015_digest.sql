-- The daily digest of what is held, which a recipient gets where the tenant wants it.
ALTER TABLE tenants ADD COLUMN quarantine_digest boolean NOT NULL DEFAULT false;

-- Whether analysis looked at all of a message. What was held before this was asked is not known to be whole.
ALTER TABLE quarantine ADD COLUMN whole boolean NOT NULL DEFAULT false;

-- When a digest told the recipient of it. Kept with each, because rows are not committed in the order of their times.
ALTER TABLE quarantine_recipients ADD COLUMN told_at timestamptz;

-- Who has a digest coming, and the day for which it was tried last: one guard takes on each, once a day.
CREATE TABLE quarantine_digests (
    tenant uuid NOT NULL REFERENCES tenants (uid) ON DELETE CASCADE,
    recipient text NOT NULL, -- as quarantine_recipients.folded
    tried date,
    PRIMARY KEY (tenant, recipient)
);
