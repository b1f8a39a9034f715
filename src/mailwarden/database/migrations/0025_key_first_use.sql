-- When and from where the first request with an API key came. Both stay empty for keys that were used before.
ALTER TABLE api_keys ADD COLUMN first_used timestamptz, ADD COLUMN first_address inet;
