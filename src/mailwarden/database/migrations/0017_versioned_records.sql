-- Stored records carry a version and the inputs of the decision. Records without a version cannot be read any more.
-- No release wrote such records, so that they are deleted; the counts in history_rollups stay.
TRUNCATE history;
