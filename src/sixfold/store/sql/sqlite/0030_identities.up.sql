-- Adds public ids of accounts, and marks predictions without a key.
-- Predictions that were ordered without a key are marked. Accounts have an id for others, which is not their
-- own, and folders for uploads whose names are secret: one for what is made with a key, one for the rest.
ALTER TABLE prediction ADD COLUMN keyless INTEGER NOT NULL DEFAULT 0 CHECK (keyless IN (0, 1));

ALTER TABLE account ADD COLUMN author_id TEXT;
UPDATE account SET author_id = 'user_' || lower(hex(randomblob(16)));
CREATE UNIQUE INDEX account_author ON account (author_id);
-- For accounts that the version before this one makes.
CREATE TRIGGER account_has_author AFTER INSERT ON account WHEN NEW.author_id IS NULL
BEGIN UPDATE account SET author_id = 'user_' || lower(hex(randomblob(16))) WHERE id = NEW.id; END;

CREATE TABLE upload_folder (
    name       TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES account (id),
    keyless    INTEGER NOT NULL CHECK (keyless IN (0, 1)),
    UNIQUE (account_id, keyless)
) STRICT;
