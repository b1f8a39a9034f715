-- Finished guard requests, one row for each ggrid, in one partition a day. The day is the one the ggrid carries,
-- so whoever knows a ggrid knows its partition, and a second guard that tells of the same request meets the same row.
CREATE TABLE history (
    day date NOT NULL,
    ggrid uuid NOT NULL,
    tenant uuid NOT NULL,
    created timestamptz NOT NULL,
    completed timestamptz NOT NULL,
    source text NOT NULL,
    guard text NOT NULL,
    envelope_from text NOT NULL,
    recipients text[] NOT NULL,
    from_address text NOT NULL,
    subject text NOT NULL,
    message_id text NOT NULL,
    sha256 text NOT NULL,
    verdict text NOT NULL,
    decision text NOT NULL,
    tags text[] NOT NULL,
    url_hosts text[] NOT NULL,
    -- The whole finished guard request as JSON in UTF-8. bytea, because jsonb refuses the NUL that hostile mail holds.
    record bytea COMPRESSION lz4 NOT NULL,
    PRIMARY KEY (day, ggrid)
) PARTITION BY RANGE (day);
