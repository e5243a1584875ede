-- Adds public ids of accounts, and marks predictions without a key.
-- Predictions that were ordered without a key are marked. Accounts have an id for others, which is not their
-- own, and folders for uploads whose names are secret: one for what is made with a key, one for the rest.
ALTER TABLE prediction ADD COLUMN keyless BIGINT NOT NULL DEFAULT 0 CHECK (keyless IN (0, 1));

-- The default is for accounts that the version before this one makes.
ALTER TABLE account ADD COLUMN author_id TEXT NOT NULL
    DEFAULT 'user_' || left(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 40);
CREATE UNIQUE INDEX account_author ON account (author_id);

CREATE TABLE upload_folder (
    name       TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES account (id),
    keyless    BIGINT NOT NULL CHECK (keyless IN (0, 1)),
    UNIQUE (account_id, keyless)
);
