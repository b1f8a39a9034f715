-- First answers by Idempotency-Key; the key itself is kept as its SHA-256 alone.
CREATE TABLE idempotency (
    token_name text NOT NULL,
    key_hash bytea NOT NULL,
    digest bytea NOT NULL,
    answer bytea NOT NULL,
    created timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (token_name, key_hash)
);

CREATE INDEX idempotency_created ON idempotency (created);
