-- Adds shares, which make an object of an account readable by a link.
-- Of a share's token only the SHA-256 is stored. `object_id` is the id of a prediction, conversation or page, or the
-- slug of a workflow. A share of a chat ends at the item `last_place`.
CREATE TABLE share (
    id            TEXT PRIMARY KEY,
    account_id    TEXT NOT NULL REFERENCES account (id),
    credential_id TEXT NOT NULL,
    token_hash    BLOB NOT NULL UNIQUE,
    kind          TEXT NOT NULL CHECK (kind IN ('run', 'workflow', 'chat', 'page')),
    object_id     TEXT NOT NULL,
    title         TEXT NOT NULL,
    last_place    INTEGER NOT NULL,
    has_inputs    INTEGER NOT NULL,
    is_indexed    INTEGER NOT NULL,
    views         INTEGER NOT NULL DEFAULT 0,
    created_at    INTEGER NOT NULL,
    expires_at    INTEGER
) STRICT;
CREATE INDEX share_account ON share (account_id, id);
CREATE INDEX share_object ON share (account_id, kind, object_id);
-- The author of a post has a name that the account chooses. A post that is not listed is found by its address
-- only. `model` and `inputs` (JSON) are those of the run that a visitor may run again with changes.
ALTER TABLE account ADD COLUMN public_name TEXT;
CREATE UNIQUE INDEX account_public_name ON account (public_name) WHERE public_name IS NOT NULL;
ALTER TABLE gallery_post ADD COLUMN is_unlisted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE gallery_post ADD COLUMN model TEXT NOT NULL DEFAULT '';
ALTER TABLE gallery_post ADD COLUMN inputs TEXT NOT NULL DEFAULT '{}';
