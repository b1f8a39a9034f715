-- The words of a message, without accents and case, by field and with the tenant (see history/words.py). The index
-- finds words by their beginning. Rows of earlier versions have none: guards add them in small batches.
ALTER TABLE history ADD COLUMN words tsvector;
CREATE INDEX history_words ON history USING gin (words) WHERE words IS NOT NULL;

-- The days that may have rows without words, and how far a guard has come in each.
CREATE TABLE history_unindexed (
    day date PRIMARY KEY,
    reached uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    known boolean NOT NULL DEFAULT true -- false: a guard only checks the day, for rows of guards of an earlier version
);
INSERT INTO history_unindexed (day)
SELECT to_date(right(relname, 8), 'YYYYMMDD') FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = 'history'::regclass AND relname ~ '^history_[0-9]{8}$';
