-- Saved searches. What a search reads are columns of history, see history.sql.

-- Row: a search that a user saved under a name; the query is that of the page's URL.
-- Written by: the user.
-- Deleted by: the user.
CREATE TABLE saved_searches (
    uid uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id uuid NOT NULL REFERENCES users (uid) ON DELETE CASCADE,
    name text NOT NULL,
    query text NOT NULL,
    created timestamptz NOT NULL DEFAULT now(),
    UNIQUE (user_id, name)
);
