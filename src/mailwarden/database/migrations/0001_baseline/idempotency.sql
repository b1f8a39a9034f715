-- First answers, so that a repeated call gets the same one.

-- Row: the first answer to an Idempotency-Key; the key itself is kept as its SHA-256 alone.
-- Written by: abby, when it has answered.
-- Deleted by: abby, 24 hours later.
CREATE TABLE idempotency (
    token_name text NOT NULL,
    key_hash bytea NOT NULL,
    digest bytea NOT NULL, -- of the call: another call with the same key is refused
    answer bytea NOT NULL,
    created timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (token_name, key_hash)
);
CREATE INDEX idempotency_created ON idempotency (created);
