-- Campaigns: messages that are like each other.

-- Row: a message that later messages are compared with (see history/campaigns.py). A key is 64 bits of a digest: it
-- reveals no text.
-- Written by: guard, for a message that is like no earlier one; a like message moves `last_seen`.
-- Deleted by: guard, 30 days after `last_seen` or with the days of history, together with its keys.
CREATE TABLE campaign_references (
    reference bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant uuid NOT NULL,
    own uuid NOT NULL, -- the campaign within the tenant
    shared uuid NOT NULL, -- the campaign over all tenants, for users who see all tenants
    sketch bytea NOT NULL, -- of the text: two sketches show how much two texts share
    keys bigint[] NOT NULL, -- those of campaign_keys, so that the reference can be deleted with them
    last_seen date NOT NULL
);
CREATE INDEX campaign_references_last_seen ON campaign_references (last_seen);

-- Row: a key of a reference, by which it is found.
-- Written by: guard, with the reference.
-- Deleted by: guard, with the reference.
CREATE TABLE campaign_keys (
    key bigint NOT NULL,
    tenant uuid NOT NULL,
    reference bigint NOT NULL,
    PRIMARY KEY (key, tenant)
);
