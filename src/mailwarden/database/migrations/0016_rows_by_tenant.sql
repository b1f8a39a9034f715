-- A message with recipients of several tenants has one row for each of them, under the same ggrid.
ALTER TABLE history DROP CONSTRAINT history_pkey;
ALTER TABLE history ADD PRIMARY KEY (day, ggrid, tenant);

-- What is held of it, too: each tenant releases and deletes its own.
ALTER TABLE quarantine DROP CONSTRAINT quarantine_ggrid_key;
ALTER TABLE quarantine ADD UNIQUE (tenant, ggrid);
