-- The URL of a webhook can be a secret: it is sealed with the pepper, and `url` has its scheme and host.
ALTER TABLE event_endpoints ADD COLUMN sealed_url bytea;
