-- The mark of a demo: all mail in this database is made up. `mailwarden demo` sets it while the database is empty.
ALTER TABLE deployment ADD demo boolean NOT NULL DEFAULT false;
