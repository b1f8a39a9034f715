-- Agreement of reporters raises the priority of a case. A person is an address without its sub-address (ann+x@ is ann@).
ALTER TABLE cases ADD COLUMN agreed text CHECK (agreed IN ('phishing', 'spam', 'fine'));
ALTER TABLE case_reports ADD COLUMN person text NOT NULL DEFAULT '';
UPDATE case_reports SET person = regexp_replace(reporter, '^([^+]+)\+.*(@[^@]*)$', '\1\2');
