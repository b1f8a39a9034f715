-- What the whole deployment knows of a sender's registered domain: one row for all tenants, under a digest with the salt
-- of `relationship_salt`. `good` and `bad` are sets of 63 groups of tenants as bits, so that a tenant counts once, and
-- the row does not say which tenants they are.
CREATE TABLE domain_memory (
    domain bytea PRIMARY KEY CHECK (octet_length(domain) = 16),
    good bigint NOT NULL,
    bad bigint NOT NULL,
    days integer NOT NULL,
    first_seen date NOT NULL,
    last_seen date NOT NULL
);

CREATE INDEX domain_memory_last_seen ON domain_memory (last_seen);
