-- Adds the credential that created predictions, sessions and files.
-- What a key without `account.read`, or an OAuth grant, has created names it as `credential_id`: such a key sees
-- its own work and nothing else. Rows of all other credentials, and of a server of the version before, have none,
-- so that only keys with `account.read` see them.
ALTER TABLE prediction ADD COLUMN credential_id TEXT;
ALTER TABLE session ADD COLUMN credential_id TEXT;
ALTER TABLE media ADD COLUMN credential_id TEXT;
ALTER TABLE relay_response ADD COLUMN credential_id TEXT NOT NULL DEFAULT '';
ALTER TABLE graph_file ADD COLUMN credential_id TEXT NOT NULL DEFAULT '';
CREATE INDEX prediction_credential ON prediction (credential_id, id) WHERE credential_id IS NOT NULL;
CREATE INDEX api_key_grant ON api_key (grant_id) WHERE grant_id IS NOT NULL;
UPDATE prediction SET credential_id = (
    SELECT COALESCE(k.grant_id, k.id) FROM api_key k WHERE k.id = prediction.key_id)
WHERE key_id IN (SELECT id FROM api_key WHERE ' ' || rights || ' ' NOT LIKE '% account.read %');
UPDATE session SET credential_id = (
    SELECT COALESCE(k.grant_id, k.id) FROM api_key k WHERE 'key:' || k.id = session.credential)
WHERE credential IN (SELECT 'key:' || id FROM api_key WHERE ' ' || rights || ' ' NOT LIKE '% account.read %');

-- Folders for the uploads of such keys; `upload_folder` has those of whole accounts.
CREATE TABLE credential_folder (
    name          TEXT PRIMARY KEY,
    account_id    TEXT NOT NULL REFERENCES account (id),
    credential_id TEXT NOT NULL,
    UNIQUE (account_id, credential_id)
) STRICT;
