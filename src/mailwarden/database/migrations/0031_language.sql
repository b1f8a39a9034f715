-- The language in which the console speaks to a user; empty: that of the browser.
ALTER TABLE people ADD COLUMN language text NOT NULL DEFAULT '';
