-- Adds shares, which make an object of an account readable by a link.
-- Of a share's token only the SHA-256 is stored. `object_id` is the id of a prediction, conversation or page, or the
-- slug of a workflow. A share of a chat ends at the item `last_place`.
CREATE TABLE share (
    id            TEXT COLLATE "C" PRIMARY KEY,
    account_id    TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    credential_id TEXT COLLATE "C" NOT NULL,
    token_hash    BYTEA NOT NULL UNIQUE,
    kind          TEXT COLLATE "C" NOT NULL CHECK (kind IN ('run', 'workflow', 'chat', 'page')),
    object_id     TEXT COLLATE "C" NOT NULL,
    title         TEXT COLLATE "C" NOT NULL,
    last_place    BIGINT NOT NULL,
    has_inputs    BIGINT NOT NULL,
    is_indexed    BIGINT NOT NULL,
    views         BIGINT NOT NULL DEFAULT 0,
    created_at    BIGINT NOT NULL,
    expires_at    BIGINT
);
CREATE INDEX share_account ON share (account_id, id);
CREATE INDEX share_object ON share (account_id, kind, object_id);
-- The author of a post has a name that the account chooses. A post that is not listed is found by its address
-- only. `model` and `inputs` (JSON) are those of the run that a visitor may run again with changes.
ALTER TABLE account ADD COLUMN public_name TEXT COLLATE "C";
CREATE UNIQUE INDEX account_public_name ON account (public_name) WHERE public_name IS NOT NULL;
ALTER TABLE gallery_post ADD COLUMN is_unlisted BIGINT NOT NULL DEFAULT 0;
ALTER TABLE gallery_post ADD COLUMN model TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE gallery_post ADD COLUMN inputs TEXT COLLATE "C" NOT NULL DEFAULT '{}';
