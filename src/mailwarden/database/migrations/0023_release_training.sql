-- Whether a requested release also trains the tenant's statistics: the user who requests it chooses.
ALTER TABLE quarantine_recipients ADD COLUMN learn boolean NOT NULL DEFAULT false;
