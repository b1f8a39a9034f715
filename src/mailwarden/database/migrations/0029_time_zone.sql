-- The zone in which the console shows times to a user; empty: the zone of the browser.
ALTER TABLE people ADD COLUMN time_zone text NOT NULL DEFAULT '';
