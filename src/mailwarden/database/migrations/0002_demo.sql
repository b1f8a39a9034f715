-- With a row this is the database of a demo: all mail in it is made up. `mailwarden demo` adds the row while nothing else
-- is there, and nothing removes it; backups contain it.
CREATE TABLE demo_mark (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row)
);
