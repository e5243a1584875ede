-- Adds vector stores.
-- Vector stores of `/v1/vector_stores`: files of an account as chunks of text. `version` changes with the chunks
-- that a search may find, so that an index in memory is known to be current.
CREATE TABLE vector_store (
    id             TEXT PRIMARY KEY,
    account_id     TEXT NOT NULL REFERENCES account (id),
    credential_id  TEXT,
    name           TEXT NOT NULL,
    description    TEXT NOT NULL,
    metadata       TEXT NOT NULL,
    expires_days   INTEGER,
    expired        INTEGER NOT NULL DEFAULT 0,
    version        INTEGER NOT NULL DEFAULT 0,
    last_active_at INTEGER NOT NULL,
    created_at     INTEGER NOT NULL
) STRICT;
CREATE INDEX vector_store_account ON vector_store (account_id, id);
CREATE INDEX vector_store_expiry ON vector_store (last_active_at) WHERE expires_days IS NOT NULL AND expired = 0;
CREATE TABLE vector_store_file (
    store_id   TEXT NOT NULL REFERENCES vector_store (id),
    file_id    TEXT NOT NULL,
    account_id TEXT NOT NULL REFERENCES account (id),
    filename   TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('in_progress', 'completed', 'failed', 'cancelled')),
    error_code TEXT NOT NULL DEFAULT '',
    error      TEXT NOT NULL DEFAULT '',
    attributes TEXT NOT NULL,
    max_tokens INTEGER NOT NULL,
    overlap    INTEGER NOT NULL,
    bytes      INTEGER NOT NULL DEFAULT 0,
    batch_id   TEXT,
    claimed_at INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (store_id, file_id)
) STRICT;
CREATE INDEX vector_store_file_waiting ON vector_store_file (created_at) WHERE status = 'in_progress';
CREATE INDEX vector_store_file_account ON vector_store_file (account_id);
CREATE INDEX vector_store_file_file ON vector_store_file (file_id);
CREATE TABLE vector_store_chunk (
    store_id TEXT NOT NULL,
    file_id  TEXT NOT NULL,
    position INTEGER NOT NULL,
    text     TEXT NOT NULL,
    PRIMARY KEY (store_id, file_id, position)
) STRICT;
CREATE TABLE vector_store_batch (
    id         TEXT PRIMARY KEY,
    store_id   TEXT NOT NULL REFERENCES vector_store (id),
    cancelled  INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX vector_store_batch_store ON vector_store_batch (store_id);
