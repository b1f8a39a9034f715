-- The event outbox: what happened, for receivers outside.

CREATE SEQUENCE event_numbers;
SELECT nextval('event_numbers'); -- a number is always above last_value from now on

-- Row: an event; it is never changed. One partition a day. Rows of a day without a partition are in the default
-- partition, so that a change never fails because of its event.
-- Written by: the transaction of the change that the event is about.
-- Deleted by: guard, a day after `events.retentionDays`.
CREATE TABLE events (
    number bigint NOT NULL DEFAULT nextval('event_numbers'),
    id uuid NOT NULL, -- made by the writer, the same in every delivery
    type text NOT NULL,
    time timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant uuid, -- NULL: an event of the deployment
    subject text NOT NULL,
    data text COMPRESSION lz4 NOT NULL -- JSON; not jsonb, which refuses the NUL that hostile mail holds
) PARTITION BY RANGE (time);
CREATE INDEX events_number ON events (number);
CREATE TABLE events_default PARTITION OF events DEFAULT;

-- Row: the only one, the highest number that was deleted: a reader that is behind it has missed events.
-- Written by: guard, with each deletion.
-- Deleted by: nothing.
CREATE TABLE events_removed (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    number bigint NOT NULL DEFAULT 0
);
INSERT INTO events_removed DEFAULT VALUES;

-- Numbers are not taken in the order of commits. A writer therefore announces itself before it takes its first number:
-- it holds a shared advisory lock whose key is 0x4D57 and the last number that was taken then. All its own numbers are
-- higher. Locks are released after the commit is visible.
CREATE FUNCTION announce_events() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    last bigint;
BEGIN
    SELECT last_value INTO last FROM event_numbers;
    PERFORM pg_advisory_xact_lock_shared((19799::bigint << 48) | last);
    RETURN NULL;
END
$$;
CREATE TRIGGER announce BEFORE INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION announce_events();

-- Up to this number every event is committed and visible to the next statement, or will never exist.
CREATE FUNCTION settled_events() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    last bigint;
    announced bigint;
BEGIN
    SELECT last_value INTO last FROM event_numbers; -- before the locks: a later writer takes a higher number
    SELECT min(((classid::bigint & 65535) << 32) | objid::bigint) INTO announced FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint >> 16 = 19799
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    RETURN least(last, announced);
END
$$;
