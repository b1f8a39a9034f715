-- The id of this deployment, which it writes into its vault: only the owner of a vault removes messages from it.
-- A backup leaves the row out: a restored database draws a new id, so that it is not the owner of production's vault.
CREATE TABLE deployment (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    uid uuid NOT NULL DEFAULT gen_random_uuid(),
    claims boolean NOT NULL DEFAULT false -- whether it claims a vault that has messages and no owner
);
INSERT INTO deployment (claims) VALUES (true);
