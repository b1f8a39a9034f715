-- Sender history, as counts. Addresses, domains and messages are stored only as digests with a salt: these rows stay
-- longer than history, and a reader who does not know a name already cannot find it here.

-- Row: the only one, the salt of all digests of this file.
-- Written by: this file.
-- Deleted by: nothing.
CREATE TABLE relationship_salt (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    salt bytea NOT NULL
);
INSERT INTO relationship_salt (salt)
VALUES (decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'));

-- Row: a sender and a recipient of a tenant, or a sender and the whole tenant: how often and since when one writes.
-- Written by: guard, with the rows of history, and abby, for a report of a user.
-- Deleted by: guard, 400 days after `last_seen`, and abby, for a report of phishing (kept in training_reports.remembered).
CREATE TABLE relationships (
    tenant uuid NOT NULL,
    pair bytea NOT NULL CHECK (octet_length(pair) = 16), -- a keyed digest of both: the table names nobody
    messages integer NOT NULL,
    days integer NOT NULL,
    first_seen date NOT NULL,
    last_seen date NOT NULL, -- it moves once a day at most, so that most updates leave the index alone
    PRIMARY KEY (tenant, pair)
);
CREATE INDEX relationships_last_seen ON relationships (last_seen);

-- Row: a Message-ID that a tenant had, so that an answer to a conversation which it never had is noticed.
-- Written by: guard, with the rows of history.
-- Deleted by: guard, 90 days later.
CREATE TABLE thread_messages (
    tenant uuid NOT NULL,
    message bytea NOT NULL CHECK (octet_length(message) = 16),
    day date NOT NULL,
    PRIMARY KEY (tenant, message)
);
CREATE INDEX thread_messages_day ON thread_messages (day);

-- Row: what the whole deployment knows of a sender's registered domain, for all tenants. `good` and `bad` are sets of
-- 63 groups of tenants as bits, so that a tenant counts once, and the row does not say which tenants they are.
-- Written by: guard, with the rows of history.
-- Deleted by: guard, 180 days after `last_seen`, or 30 if only one group of tenants knows the domain.
CREATE TABLE domain_memory (
    domain bytea PRIMARY KEY CHECK (octet_length(domain) = 16),
    good bigint NOT NULL,
    bad bigint NOT NULL,
    days integer NOT NULL,
    first_seen date NOT NULL,
    last_seen date NOT NULL
);
CREATE INDEX domain_memory_last_seen ON domain_memory (last_seen);
