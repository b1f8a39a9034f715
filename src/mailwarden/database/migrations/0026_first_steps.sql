-- The first steps that a user has hidden from the checklist.
ALTER TABLE people ADD COLUMN hidden_steps text[] NOT NULL DEFAULT '{}';
