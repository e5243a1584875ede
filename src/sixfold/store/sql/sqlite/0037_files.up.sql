-- Adds files of `/v1/files`.
-- Their bytes belong to a row of `media`, so that backups and the deletion of unused blobs include them. An upload in
-- parts becomes a file when it is completed; its parts expire with it.
CREATE TABLE account_file (
    id            TEXT PRIMARY KEY,
    account_id    TEXT NOT NULL REFERENCES account (id),
    credential_id TEXT,
    filename      TEXT NOT NULL,
    purpose       TEXT NOT NULL,
    content_type  TEXT NOT NULL,
    size          INTEGER NOT NULL,
    media         TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    expires_at    INTEGER
) STRICT;
CREATE INDEX account_file_account ON account_file (account_id, id);
CREATE INDEX account_file_expiry ON account_file (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE file_upload (
    id            TEXT PRIMARY KEY,
    account_id    TEXT NOT NULL REFERENCES account (id),
    credential_id TEXT,
    filename      TEXT NOT NULL,
    purpose       TEXT NOT NULL,
    content_type  TEXT NOT NULL,
    size          INTEGER NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('pending', 'completed', 'cancelled')),
    file_id       TEXT,
    file_seconds  INTEGER,
    created_at    INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX file_upload_account ON file_upload (account_id, id);
CREATE INDEX file_upload_expiry ON file_upload (expires_at);
CREATE TABLE file_part (
    id         TEXT PRIMARY KEY,
    upload_id  TEXT NOT NULL REFERENCES file_upload (id),
    media      TEXT NOT NULL,
    size       INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX file_part_upload ON file_part (upload_id);
