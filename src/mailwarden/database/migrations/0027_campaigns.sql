-- The messages that later messages are compared with (see history/campaigns.py). `own` is the campaign within the
-- tenant, `shared` the one over all tenants. A key is 64 bits of a digest: it reveals no text.
CREATE TABLE campaign_references (
    reference bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant uuid NOT NULL,
    own uuid NOT NULL,
    shared uuid NOT NULL,
    sketch bytea NOT NULL,
    keys bigint[] NOT NULL,
    last_seen date NOT NULL
);
CREATE INDEX campaign_references_last_seen ON campaign_references (last_seen);

CREATE TABLE campaign_keys (
    key bigint NOT NULL,
    tenant uuid NOT NULL,
    reference bigint NOT NULL,
    PRIMARY KEY (key, tenant)
);
