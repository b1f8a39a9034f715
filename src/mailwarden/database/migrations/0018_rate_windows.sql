-- How many calls of its rate limit each API key has in this minute, over all abby processes. Losing it with a crash of
-- PostgreSQL costs one minute's count, so it is not written to the log.
CREATE UNLOGGED TABLE rate_windows (
    subject text PRIMARY KEY,
    ends timestamptz NOT NULL,
    taken integer NOT NULL, -- calls that processes have leased in this window
    granted integer NOT NULL -- of them, by the last lease
);
