-- The messages that a tenant had, so that an answer to a conversation which it never had is noticed. A message is the
-- digest of its Message-ID under the salt of `relationship_salt`, so that it reveals no name to a reader.
CREATE TABLE thread_messages (
    tenant uuid NOT NULL,
    message bytea NOT NULL CHECK (octet_length(message) = 16),
    day date NOT NULL,
    PRIMARY KEY (tenant, message)
);

CREATE INDEX thread_messages_day ON thread_messages (day);
