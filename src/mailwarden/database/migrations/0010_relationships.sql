-- Who has written to whom in a tenant, as counts. Addresses stand here only as digests under a salt of the deployment,
-- so that what is kept longer than history tells nothing to who does not know both addresses already.
CREATE TABLE relationships (
    tenant uuid NOT NULL,
    pair bytea NOT NULL CHECK (octet_length(pair) = 16),
    messages integer NOT NULL,
    days integer NOT NULL,
    first_seen date NOT NULL,
    last_seen date NOT NULL,
    PRIMARY KEY (tenant, pair)
);

-- It moves once a day at most, so that most updates leave the index alone.
CREATE INDEX relationships_last_seen ON relationships (last_seen);

CREATE TABLE relationship_salt (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    salt bytea NOT NULL
);

INSERT INTO relationship_salt (salt)
VALUES (decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'));
