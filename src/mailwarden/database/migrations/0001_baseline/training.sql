-- Reports of messages by the users of a tenant, and the training from them. These rows are the source: the statistics
-- that Rspamd keeps in Redis are made from them, and can be made again.

-- Row: a message that a user reported or released, from which Rspamd is trained.
-- Written by: abby, for a report or the outcome of a case; guard, for a release and when it has trained Rspamd.
-- Deleted by: abby, if the report is withdrawn or training is reset; guard, `training.retentionDays` later.
CREATE TABLE training_reports (
    uid uuid PRIMARY KEY,
    tenant uuid NOT NULL REFERENCES tenants (uid) ON DELETE CASCADE,
    kind text NOT NULL CHECK (kind IN ('released', 'phishing', 'spam', 'good')),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32), -- SHA-256 of the message
    size integer NOT NULL,
    contents bytea, -- compressed and sealed; NULL if the message was not given or is too large to train with
    ggrid uuid,
    subject text NOT NULL,
    reported_by text NOT NULL,
    reported_at timestamptz NOT NULL DEFAULT now(),
    trained_in integer NOT NULL DEFAULT 0, -- the generation of statistics that it was last trained in
    rejected boolean NOT NULL DEFAULT false, -- Rspamd found too little text in it
    remembered jsonb, -- what was changed in `relationships`, so that it can be undone
    UNIQUE (tenant, digest)
);
CREATE INDEX training_reports_newest ON training_reports (tenant, reported_at DESC, uid DESC);
CREATE INDEX training_reports_of_message ON training_reports (ggrid) WHERE ggrid IS NOT NULL;

-- Row: by which generation of statistics a tenant's messages are judged, and which is wanted. A report that is withdrawn
-- cannot be untrained, so the others are trained again in the next generation, and then that one is used.
-- Written by: abby, with the first report and with one that is withdrawn; guard, when a generation is complete.
-- Deleted by: nothing but the deletion of the tenant.
CREATE TABLE training (
    tenant uuid PRIMARY KEY REFERENCES tenants (uid) ON DELETE CASCADE,
    generation integer NOT NULL DEFAULT 1,
    wanted integer NOT NULL DEFAULT 1,
    CHECK (wanted >= generation)
);
