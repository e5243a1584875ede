-- Adds files of `/v1/files`.
-- Their bytes belong to a row of `media`, so that backups and the deletion of unused blobs include them. An upload in
-- parts becomes a file when it is completed; its parts expire with it.
CREATE TABLE account_file (
    id            TEXT COLLATE "C" PRIMARY KEY,
    account_id    TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    credential_id TEXT COLLATE "C",
    filename      TEXT COLLATE "C" NOT NULL,
    purpose       TEXT COLLATE "C" NOT NULL,
    content_type  TEXT COLLATE "C" NOT NULL,
    size          BIGINT NOT NULL,
    media         TEXT COLLATE "C" NOT NULL,
    created_at    BIGINT NOT NULL,
    expires_at    BIGINT
);
CREATE INDEX account_file_account ON account_file (account_id, id);
CREATE INDEX account_file_expiry ON account_file (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE file_upload (
    id            TEXT COLLATE "C" PRIMARY KEY,
    account_id    TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    credential_id TEXT COLLATE "C",
    filename      TEXT COLLATE "C" NOT NULL,
    purpose       TEXT COLLATE "C" NOT NULL,
    content_type  TEXT COLLATE "C" NOT NULL,
    size          BIGINT NOT NULL,
    state         TEXT COLLATE "C" NOT NULL CHECK (state IN ('pending', 'completed', 'cancelled')),
    file_id       TEXT COLLATE "C",
    file_seconds  BIGINT,
    created_at    BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL
);
CREATE INDEX file_upload_account ON file_upload (account_id, id);
CREATE INDEX file_upload_expiry ON file_upload (expires_at);
CREATE TABLE file_part (
    id         TEXT COLLATE "C" PRIMARY KEY,
    upload_id  TEXT COLLATE "C" NOT NULL REFERENCES file_upload (id),
    media      TEXT COLLATE "C" NOT NULL,
    size       BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX file_part_upload ON file_part (upload_id);
