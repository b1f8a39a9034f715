-- An update that is being read stands beside one that waits: it takes its place once it was read and rehearsed.

DROP INDEX feed_updates_open;
CREATE UNIQUE INDEX feed_updates_open ON feed_updates (feed) WHERE state IN ('waiting', 'applying');
CREATE UNIQUE INDEX feed_updates_reading ON feed_updates (feed) WHERE state = 'reading';
